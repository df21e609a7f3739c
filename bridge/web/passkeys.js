// Passkeys: the page's part of creating one (`/passkeys`) and of logging in with one (`/login/passkey`).
//
// The bridge creates the challenge and verifies the answer; this code only transports them.

const said = /** @type {HTMLElement} */ (document.getElementById('said'));
const form = /** @type {HTMLFormElement | null} */ (document.getElementById('passkey-new'));
const button = /** @type {HTMLButtonElement | null} */ (document.getElementById('passkey-login'));

form?.addEventListener('submit', (event) => {
  event.preventDefault();
  carried(form.querySelector('button'), async () => {
    const options = await asked('/passkeys/options');
    const made = await navigator.credentials.create({
      publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options),
    });
    const label = /** @type {HTMLInputElement} */ (document.getElementById('label')).value;
    await sent('/passkeys', { answer: answerOf(made), label });
    location.reload();
  });
});

button?.addEventListener('click', () => {
  carried(button, async () => {
    const options = await asked('/login/passkey/options');
    const signed = await navigator.credentials.get({
      publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options),
    });
    await sent('/login/passkey', answerOf(signed));
    location.assign(button.dataset.to ?? '/');
  });
});

/**
 * Runs one action at a time, and shows its error.
 * @param {HTMLButtonElement | null} pressed
 * @param {() => Promise<void>} work
 */
async function carried(pressed, work) {
  if (!pressed || pressed.disabled) return;
  pressed.disabled = true;
  said.textContent = '';
  try {
    if (!('PublicKeyCredential' in window && 'parseCreationOptionsFromJSON' in PublicKeyCredential)) {
      throw new Error('This browser is too old for passkeys.');
    }
    await work();
  } catch (error) {
    said.textContent = words(error);
  } finally {
    pressed.disabled = false;
  }
}

/** @param {unknown} error */
function words(error) {
  if (error instanceof DOMException && error.name === 'NotAllowedError') {
    return 'Nothing was done: it was cancelled, took too long, or this device has no passkey for this address.';
  }
  if (error instanceof DOMException && error.name === 'InvalidStateError') return 'This device has a passkey already.';
  return error instanceof Error ? error.message : String(error);
}

/** @param {string} path */
async function asked(path) {
  return (await post(path, null)).json();
}

/** @param {string} path @param {unknown} body */
async function sent(path, body) {
  await post(path, JSON.stringify(body));
}

/** @param {string} path @param {string | null} body */
async function post(path, body) {
  const response = await fetch(path, { method: 'POST', body, headers: { Accept: 'application/json' } });
  if (response.ok) return response;
  const refusal = await response.json().catch(() => null);
  throw new Error(refusal?.error?.message ?? 'The bridge sent an unexpected answer. Try again.');
}

/** @param {Credential | null} credential */
function answerOf(credential) {
  if (!(credential instanceof PublicKeyCredential)) throw new Error('This device created no passkey.');
  return credential.toJSON();
}
