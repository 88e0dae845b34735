// Questions to the operator, in real dialogs of the browser: Escape closes them, and focus goes back to where it was.

import { h, fill, newID } from './dom.js';
import { printable } from './format.js';

/**
 * ask shows a dialog with fields, and answers what run has answered to their values, or null if it was closed. A field is {name,
 * label,
 * kind, value, hint, options, required, from, to, longest}. If run throws, its message is shown, and the dialog stays.
 */
export function ask({ title, lines = [], fields = [], action, danger = false, run }) {
  return new Promise((resolve) => {
    const inputs = new Map(fields.map((field) => [field.name, input(field)]));
    const wrong = h('p.wrong', { role: 'alert' });
    const go = h(danger ? 'button.danger' : 'button.primary', { type: 'submit' }, action);
    const heading = newID('dialog');
    const form = h(
      'form',
      { autocomplete: 'off' },
      h('h2', { id: heading }, title),
      lines.map((line) => h('p', line)),
      rows(fields, inputs),
      wrong,
      h('p.buttons', h('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel'), go),
    );
    const dialog = h('dialog', { 'aria-labelledby': heading }, form);
    let result = null;

    form.addEventListener('submit', async (event) => {
      event.preventDefault();
      const values = Object.fromEntries([...inputs].map(([name, one]) => [name, one.value()]));
      go.disabled = true;
      fill(wrong);
      try {
        result = (await run(values)) ?? {};
        dialog.close();
      } catch (error) {
        fill(
          wrong,
          printable(error.message),
          error.mistakes?.length && h('span.lines', error.mistakes.map(printable).join('\n')),
        );
      } finally {
        go.disabled = false;
      }
    });
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(result);
    });
    document.body.append(dialog);
    dialog.showModal();
    (form.querySelector('input, select, textarea') ?? go).focus();
  });
}

// rows are the fields one below the other, narrow ones that follow each other side by side.
function rows(fields, inputs) {
  const all = [];
  for (const field of fields) {
    const { row: one } = inputs.get(field.name);
    if (!field.narrow) all.push(one);
    else if (all.at(-1)?.className === 'pair') all.at(-1).append(one);
    else all.push(h('div.pair', one));
  }
  return all;
}

/** tell shows something until it is closed. */
export function tell(title, ...content) {
  const heading = newID('dialog');
  const dialog = h(
    'dialog',
    { 'aria-labelledby': heading },
    h('h2', { id: heading }, title),
    content,
    h('p.buttons', h('button.primary', { type: 'button', onclick: () => dialog.close() }, 'Close')),
  );
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** input makes a field with its label: {row, value(), set(v), element}. */
export function input(field) {
  const id = newID('field');
  const hint = field.hint ? h('small', { id: `${id}-hint` }, field.hint) : null;
  const attributes = {
    id,
    name: field.name,
    required: field.required,
    'aria-describedby': hint?.id,
    value: field.value,
    placeholder: field.placeholder,
    min: field.from,
    max: field.to,
    maxlength: field.longest,
    spellcheck: 'false',
    autocomplete: field.autocomplete ?? 'off',
  };
  if (field.kind === 'check') {
    const element = h('input', { id, type: 'checkbox', checked: field.value, onchange: field.changed });
    return {
      element,
      row: h('p.field.check', element, h('label', { for: id }, field.label), hint),
      value: () => element.checked,
      set: (v) => {
        element.checked = v;
      },
    };
  }
  let element;
  if (field.kind === 'choice') {
    element = h('select', { id, name: field.name, 'aria-describedby': hint?.id, onchange: field.changed });
    const set = (options) => {
      const chosen = element.value;
      fill(
        element,
        options.map(([value, text]) => h('option', { value }, text)),
      );
      if (options.some(([value]) => value === chosen)) element.value = chosen;
    };
    set(field.options);
    if (field.value !== undefined) element.value = field.value;
    return {
      element,
      row: row(field, id, element, hint),
      value: () => element.value,
      set: (v) => {
        element.value = v;
      },
      options: set,
    };
  }
  if (field.kind === 'lines') element = h('textarea', { ...attributes, rows: field.rows ?? 3 });
  else element = h('input', { type: field.kind ?? 'text', step: field.kind === 'number' ? 'any' : null, ...attributes });
  if (field.changed) element.addEventListener('change', field.changed);
  return {
    element,
    row: row(field, id, element, hint),
    value: () => element.value,
    set: (v) => {
      element.value = v;
    },
  };
}

function row(field, id, element, hint) {
  return h(field.narrow ? 'p.field.narrow' : 'p.field', h('label', { for: id }, field.label), element, hint);
}

/** note says in the corner of the page what was done. It is read out, and goes by itself. */
export function note(text) {
  const element = h('p', text);
  document.getElementById('notes').append(element);
  setTimeout(() => element.remove(), 8000);
}
