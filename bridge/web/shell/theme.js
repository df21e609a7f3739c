// The theme: light, dark, or the system's; stored in this browser.

const KEY = 'sprite.theme';
/** @type {Record<string, string>} */
export const THEMES = { system: 'System', light: 'Light', dark: 'Dark' };

export const theme = () => localStorage.getItem(KEY) ?? 'system';

export function applyTheme() {
  if (theme() === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme();
}

/** @param {string} name  one of THEMES */
export function chooseTheme(name) {
  localStorage.setItem(KEY, name);
  applyTheme();
}

/** Switches to the next theme; returns its name. */
export function cycleTheme() {
  const names = Object.keys(THEMES);
  chooseTheme(names[(names.indexOf(theme()) + 1) % names.length] ?? 'system');
  return theme();
}
