// Runs before the page is painted, so that it never flashes in the wrong colours.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem('weir.theme');
  } catch { /* storage is switched off: the system decides */ }
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
})();
