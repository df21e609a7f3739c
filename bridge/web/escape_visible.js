// Show text for a permission request so that every character is visible: control characters and invisible ones appear
// by name.

/** Controls, marks of direction and joining, invisible letters, and every space except the plain one. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]|(?! )\p{Zs}/gu;

/** @param {string} letter */
const named = (letter) => `<U+${(letter.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}>`;

/**
 * Escapes a text for a line or a label.
 * @param {string} text
 */
export const escapeVisible = (text) => text.replace(UNSEEN, named);

/**
 * Escapes a text for a block that keeps its line ends; a copy has the original line ends and tabs.
 * @param {string} text
 */
export function escapeVisibleBlock(text) {
  // One by one: a call does not take as many arguments as a text may have marks.
  const parts = document.createDocumentFragment();
  let shown = 0;
  for (const { 0: letter, index } of text.matchAll(UNSEEN)) {
    parts.append(text.slice(shown, index));
    shown = index + letter.length;
    const mark = document.createElement('span');
    mark.className = letter === '\n' ? 'line-end' : letter === '\t' ? 'tab' : 'unseen';
    mark.textContent = mark.className === 'unseen' ? named(letter) : letter;
    parts.append(mark);
  }
  parts.append(text.slice(shown));
  return parts;
}
