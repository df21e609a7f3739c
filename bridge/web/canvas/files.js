/** Which files of the workspace a page may download and show, under which address and as what. Pure. */

const SHARED = /(?:^|\/)((?:documents|artifacts|ocr|extractions)\/.+)$/u;

/**
 * The address of a file in one of the person's folders, also within a longer path; null for what is not served.
 * @param {string} path
 */
export function downloadAddress(path) {
  const shared = SHARED.exec(String(path).replaceAll('\\', '/'))?.[1];
  if (shared === undefined) return null;
  const parts = shared.split('/').filter((part) => part !== '');
  // Browsers would fold these away, and the address would name another file than the one shown.
  // And the bridge serves no name with a control character.
  if (parts.some((part) => part === '.' || part === '..' || /[\p{Cc}\u2028\u2029]/u.test(part))) return null;
  try {
    return `/files/${parts.map(encodeURIComponent).join('/')}`;
  } catch {
    return null; // half a surrogate pair, which is in no file's name
  }
}

/**
 * The address at which a file can be looked at.
 * @param {string} path
 */
export function previewAddress(path) {
  const address = downloadAddress(path);
  return address === null ? null : `${address}?preview`;
}

const PICTURE = /\.(?:png|jpe?g|gif|webp|avif|bmp|svg)$/iu;

/**
 * As what a file is shown, by its name; what is neither a picture nor a PDF may be a text.
 * @param {string} path
 * @returns {'image' | 'pdf' | 'text'}
 */
export function kindOf(path) {
  if (PICTURE.test(path)) return 'image';
  return /\.pdf$/iu.test(path) ? 'pdf' : 'text';
}

/**
 * A name with a sign for each character that nobody can see, or that would turn the order of the others around.
 * @param {string} name
 */
export const visible = (name) => name.replaceAll(/[\p{Cc}\p{Cf}\p{Co}\p{Cs}]/gu, '\u{fffd}');

/**
 * The last part of a path: what people call the file.
 * @param {string} path
 */
export function fileName(path) {
  return String(path).split(/[/\\]/u).filter(Boolean).at(-1) ?? '';
}
