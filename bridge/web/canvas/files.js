/** Which files of the workspace a page may download, and under which address. Pure. */

const SHARED = /(?:^|\/)((?:documents|artifacts|ocr|extractions)\/.+)$/u;

/**
 * The address of `documents/...` or of another of the person's folders, also within a longer path; null for what is not served.
 * @param {string} path
 */
export function downloadAddress(path) {
  const shared = SHARED.exec(String(path).replaceAll('\\', '/'))?.[1];
  if (shared === undefined) return null;
  const parts = shared.split('/').filter((part) => part !== '');
  // Browsers would fold these away, and the address would name another file than the one shown.
  if (parts.some((part) => part === '.' || part === '..')) return null;
  try {
    return `/files/${parts.map(encodeURIComponent).join('/')}`;
  } catch {
    return null; // half a surrogate pair, which is in no file's name
  }
}

/**
 * The last part of a path: what people call the file.
 * @param {string} path
 */
export function fileName(path) {
  return String(path).split(/[/\\]/u).filter(Boolean).at(-1) ?? '';
}
