// The theme: light, dark, or the system's; stored in this browser.

const KEY = 'sprite.theme';
const ORDER = ['system', 'light', 'dark'];

/** @param {string} [theme] */
export function applyTheme(theme = localStorage.getItem(KEY) ?? 'system') {
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  return theme;
}

/** Switches to the next theme; returns its name. */
export function cycleTheme() {
  const next = ORDER[(ORDER.indexOf(localStorage.getItem(KEY) ?? 'system') + 1) % ORDER.length] ?? 'system';
  localStorage.setItem(KEY, next);
  return applyTheme(next);
}
