// Headings in foreign texts: none may be more than one level below the one before it.

/**
 * Gives the headings in `root` levels without gaps, below the level `above`; their appearance stays.
 * @param {Element} root
 * @param {number} above
 */
export function evenOutline(root, above) {
  let last = above;
  for (const heading of root.querySelectorAll('h1, h2, h3, h4, h5, h6')) {
    const own = Number(heading.localName[1]);
    const level = Math.min(own, last + 1);
    if (level === own) heading.removeAttribute('aria-level');
    else heading.setAttribute('aria-level', String(level));
    last = level;
  }
}
