// Small hands for the DOM: elements without HTML text, the clipboard, a file for the person.

/**
 * An element: props are properties (class, textContent, onclick) or attributes (role, aria-*, data-*); children are
 * nodes or strings.
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === 'class') element.className = value;
    else if (name === 'dataset') Object.assign(element.dataset, value);
    else if (name.includes('-') || name === 'role' || name === 'for')
      element.setAttribute(name, value === true ? '' : value);
    else element[name] = value;
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Puts a text on the clipboard, also where the page is not served over TLS. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h('textarea', { value: text, class: 'visually-hidden', 'aria-hidden': 'true' });
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
}

/** Hands the person a file made here. */
export function download(name, text, type = 'text/plain') {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h('a', { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** Whether a key press belongs to a field the person types into. */
export function isTyping(target) {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable ||
      target.matches(
        'textarea, select, input:not([type=checkbox]):not([type=radio]):not([type=button]):not([type=range])',
      ))
  );
}
