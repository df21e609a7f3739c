// The stacks of the canvas and what people do with them. The server's word is awaited; a stack is a tab, no more.

const REMEMBERED = 'sprite.stack';

export class Stacks {
  #page;
  #opened;
  #active;

  /** `opened(stackId)` is called when another stack is in front. */
  constructor(page, opened) {
    this.#page = page;
    this.#opened = opened;
    this.#active = remembered();
    /** Stacks with something new that nobody has looked at. */
    this.news = new Set();
  }

  get all() {
    return this.#page.store.state.stacks;
  }

  get open() {
    return this.all.filter((stack) => !stack.archived);
  }

  /** The stack in front: the one chosen last, else the newest (where the agent draws), else null. */
  get active() {
    const { open } = this;
    return open.find((stack) => stack.stack_id === this.#active) ?? open.at(-1) ?? null;
  }

  /** Brings a stack to the front. */
  choose(stackId) {
    this.#active = stackId;
    remember(stackId);
    this.news.delete(stackId);
    this.#opened(stackId);
  }

  /** Brings the next (1) or the one before (-1) to the front. */
  step(by) {
    const { open, active } = this;
    if (open.length < 2) return null;
    const at = open.findIndex((stack) => stack.stack_id === active.stack_id);
    const next = open[(at + by + open.length) % open.length];
    this.choose(next.stack_id);
    return next;
  }

  async create() {
    const name = await this.#page.prompt({ title: 'New stack', label: 'Name', confirm: 'Create', maxlength: 200 });
    if (name === null) return;
    const made = await this.#tell({ action: 'create_stack', name });
    if (made === null) return;
    this.#set({ stack_id: made.stack_id, name, archived: false });
    this.choose(made.stack_id);
  }

  async rename(stack) {
    const asked = { title: 'Rename stack', label: 'Name', value: stack.name, confirm: 'Rename', maxlength: 200 };
    const name = await this.#page.prompt(asked);
    if (name === null || name === stack.name) return;
    if (await this.#tell({ action: 'rename_stack', stack_id: stack.stack_id, name })) this.#set({ ...stack, name });
  }

  async archive(stack) {
    if (!(await this.#tell({ action: 'archive_stack', stack_id: stack.stack_id }))) return;
    this.#set({ ...stack, archived: true });
    this.#opened(this.active?.stack_id ?? null);
    const action = { label: 'Undo', run: () => this.restore({ ...stack, archived: true }) };
    this.#page.toast({ kind: 'success', text: `“${stack.name}” is archived, with its cards.`, action });
  }

  async restore(stack) {
    if (!(await this.#tell({ action: 'restore_stack', stack_id: stack.stack_id }))) return false;
    this.#set({ ...stack, archived: false });
    this.choose(stack.stack_id);
    return true;
  }

  async archiveCard(card) {
    if (!(await this.#tell({ action: 'archive_card', card_id: card.card_id }))) return;
    this.#setCard(card, true);
    const action = { label: 'Undo', run: () => this.restoreCard(card) };
    this.#page.toast({ kind: 'success', text: `“${card.title}” is archived.`, action });
  }

  /** Puts a card back, and its stack with it where that is archived too. */
  async restoreCard(card) {
    const stack = this.all.find(({ stack_id: id }) => id === card.stack_id);
    if (stack?.archived && !(await this.restore(stack))) return;
    if (await this.#tell({ action: 'restore_card', card_id: card.card_id })) this.#setCard(card, false);
  }

  async #tell(interaction) {
    try {
      return await this.#page.connection.ask('canvas_interaction', interaction);
    } catch (problem) {
      this.#page.toast({ kind: 'error', text: `Nothing was changed: ${problem.message}` });
      return null;
    }
  }

  /** What the server has just confirmed; its own message to all pages says the same. */
  #set(changed) {
    const known = this.all.some((stack) => stack.stack_id === changed.stack_id);
    const merged = this.all.map((stack) => (stack.stack_id === changed.stack_id ? changed : stack));
    this.#page.store.setStacks(known ? merged : [...merged, changed]);
  }

  #setCard(card, archived) {
    const known = this.#page.store.state.cards.get(card.card_id);
    if (known) this.#page.store.setCard({ ...known, archived });
  }
}

/** Stacks and single cards that are put away; the cards of an archived stack come back with it. */
export function archivedOf({ stacks, cards }) {
  const gone = new Set(stacks.filter((stack) => stack.archived).map((stack) => stack.stack_id));
  return {
    stacks: stacks.filter((stack) => stack.archived),
    cards: [...cards.values()].filter((card) => card.archived && !gone.has(card.stack_id)),
  };
}

function remembered() {
  try {
    return localStorage.getItem(REMEMBERED);
  } catch {
    return null; // the browser keeps nothing for this page
  }
}

function remember(stackId) {
  try {
    localStorage.setItem(REMEMBERED, stackId);
  } catch {
    // Then the newest stack is in front after a reload.
  }
}
