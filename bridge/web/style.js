// Style sheets that are not part of the first load.

/** @type {Map<string, Promise<unknown>>} */
const loading = new Map();

/**
 * Loads a style sheet once; rejects if that fails, and retries on the next call.
 * @param {string} name
 * @returns {Promise<unknown>}
 */
export function loadStyle(name) {
  const known = loading.get(name) ?? load(name);
  loading.set(name, known);
  return known;
}

/** @param {string} name @returns {Promise<unknown>} */
function load(name) {
  const link = document.createElement('link');
  link.rel = 'stylesheet';
  link.href = new URL(name, import.meta.url).href;
  return new Promise((resolve, reject) => {
    link.onload = resolve;
    link.onerror = () => {
      loading.delete(name);
      link.remove();
      reject(new Error(`${name} could not be loaded`));
    };
    document.head.append(link);
  });
}
