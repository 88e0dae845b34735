// Finds the sections that have all words of the search, each at the beginning of a word. What it looks through is loaded with the
// first letter.
"use strict";
(() => {
	const index = document.currentScript.dataset.sections;
	const root = index.slice(0, index.lastIndexOf("/") + 1);
	const form = document.querySelector("form[role=search]");
	const field = form.querySelector("input");
	const found = document.getElementById("found");
	const article = document.querySelector("article");
	const most = 30;

	let loading;
	const load = () => loading ??= new Promise((resolve, reject) => {
		const script = document.createElement("script");
		script.src = index;
		script.onload = () => resolve(sections.map((s) => ({
			...s,
			title: " " + (s.page + " " + s.heading).toLowerCase(),
			words: " " + s.text.toLowerCase(),
		})));
		script.onerror = () => {
			loading = undefined;
			reject(new Error("the index cannot be loaded"));
		};
		document.head.append(script);
	});

	// at is where a text has the beginning of a word, or -1.
	const at = (text, word) => {
		for (let i = text.indexOf(word); i > 0; i = text.indexOf(word, i + 1)) {
			if (!/[\p{L}\p{N}]/u.test(text[i - 1])) {
				return i;
			}
		}
		return -1;
	};

	const score = (s, words) => {
		let sum = 0;
		for (const word of words) {
			const title = at(s.title, word) >= 0;
			if (!title && at(s.words, word) < 0) {
				return 0;
			}
			sum += title ? 10 : 1;
		}
		return sum;
	};

	const element = (name, text, ...children) => {
		const e = document.createElement(name);
		e.append(text, ...children);
		return e;
	};

	const item = (s, words) => {
		const link = element("a", s.heading === s.page ? s.page : s.page + ": " + s.heading);
		link.href = root + s.address;
		link.addEventListener("click", () => {
			field.value = "";
			show("");
		});
		const from = Math.max(0, at(s.words, words[0]) - 61);
		const excerpt = s.text.slice(from, from + 180);
		return element("li", link, element("p", (from > 0 ? "… " : "") + excerpt + (from + 180 < s.text.length ? " …" : "")));
	};

	const show = async (sought) => {
		const words = sought.toLowerCase().split(/\s+/).filter(Boolean);
		found.hidden = words.length === 0;
		article.hidden = words.length > 0;
		if (words.length === 0) {
			return;
		}
		let all;
		try {
			all = await load();
		} catch (err) {
			found.replaceChildren(element("p", "The search does not work: " + err.message + "."));
			return;
		}
		if (field.value !== sought) {
			return; // more was typed meanwhile
		}
		const hits = all.map((s) => [score(s, words), s]).filter(([n]) => n > 0).sort(([a], [b]) => b - a);
		const list = element("ol", "");
		list.append(...hits.slice(0, most).map(([, s]) => item(s, words)));
		found.replaceChildren(element("h1", hits.length === 1 ? "1 section" : hits.length + " sections"), list);
	};

	form.hidden = false;
	form.addEventListener("submit", (e) => {
		e.preventDefault();
		found.querySelector("a")?.focus();
	});
	field.addEventListener("input", () => show(field.value));
	document.addEventListener("keydown", (e) => {
		if (e.key === "/" && !e.ctrlKey && !e.metaKey && !e.altKey && !/^(INPUT|TEXTAREA)$/.test(e.target.tagName)) {
			e.preventDefault();
			field.focus();
		} else if (e.key === "Escape" && e.target === field) {
			field.value = "";
			show("");
		}
	});
	if (field.value) {
		show(field.value); // the browser has kept it
	}
})();
