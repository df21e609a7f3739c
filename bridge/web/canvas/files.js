/** The workspace files that a page may download and show, with their addresses and kinds. Pure. */

const SHARED = /(?:^|\/)((?:documents|artifacts|ocr|extractions)\/.+)$/u;

/**
 * Returns the address of a file in one of the person's folders, also within a longer path; null for other files.
 * @param {string} path
 */
export function downloadAddress(path) {
  const shared = SHARED.exec(String(path).replaceAll('\\', '/'))?.[1];
  if (shared === undefined) return null;
  const parts = shared.split('/').filter((part) => part !== '');
  // Browsers would fold these parts, and the address would name another file than the one shown. The bridge serves no
  // name with a control character.
  if (parts.some((part) => part === '.' || part === '..' || /[\p{Cc}\u2028\u2029]/u.test(part))) return null;
  try {
    return `/files/${parts.map(encodeURIComponent).join('/')}`;
  } catch {
    return null; // half a surrogate pair, which is in no file's name
  }
}

/**
 * Returns the address of a file's preview.
 * @param {string} path
 */
export function previewAddress(path) {
  const address = downloadAddress(path);
  return address === null ? null : `${address}?preview`;
}

const PICTURE = /\.(?:png|jpe?g|gif|webp|avif|bmp|svg)$/iu;

/**
 * Returns how a file is shown, by its name; a file that is neither an image nor a PDF may be text.
 * @param {string} path
 * @returns {'image' | 'pdf' | 'text'}
 */
export function kindOf(path) {
  if (PICTURE.test(path)) return 'image';
  return /\.pdf$/iu.test(path) ? 'pdf' : 'text';
}

/**
 * Replaces each invisible or direction-changing character of a name by a visible sign.
 * @param {string} name
 */
export const visible = (name) => name.replaceAll(/[\p{Cc}\p{Cf}\p{Co}\p{Cs}]/gu, '\u{fffd}');

/**
 * Returns the last part of a path: the file's name.
 * @param {string} path
 */
export function fileName(path) {
  return String(path).split(/[/\\]/u).filter(Boolean).at(-1) ?? '';
}
