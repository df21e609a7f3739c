// Made by tools/page_types.py from sprite/protocol/; change it there, then `make types`.

export interface Messages {
  sent: {
    resume: ResumeFrom;
    mission: Mission;
    heartbeat: Heartbeat;
    interrupt: Interrupt;
    canvas_interaction:
      | CreateCard
      | UpdateBlock
      | CreateStack
      | RenameStack
      | ArchiveStack
      | RestoreStack
      | ArchiveCard
      | RestoreCard
      | MoveCard;
    file_upload: FileUpload;
    memory:
      | FilesRequest
      | FileRequest
      | HistoryRequest
      | SearchRequest
      | AroundRequest
      | BootRequest
      | LearningsRequest
      | TurnRequest
      | ActionsRequest
      | EditRequest
      | AcceptRequest
      | RejectRequest
      | AddActionRequest
      | UpdateActionRequest
      | ResolveActionRequest
      | UserFilesRequest
      | DeleteUserFileRequest
      | ChangesRequest
      | UndoRequest
      | RetryRequest
      | LearningRequest
      | ForgetRequest
      | CurationsRequest
      | ObservationsRequest
      | ChatRequest
      | SessionsRequest
      | RenameSessionRequest
      | RulesRequest
      | HealthRequest;
    permission: Permission;
    rule: Rule;
    system: System;
    reach: Reach;
    observe: Observe;
    ping: Ping;
  };
  heard: {
    auth_ok: AuthOk;
    ack: Ack;
    error: Error;
    state_sync: StateSync;
    gap: Gap;
    status: Status;
    agent_event:
      | Started
      | TextDelta
      | Thinking
      | WholeText
      | ToolUse
      | ToolResult
      | ToolOutput
      | Compacting
      | Compacted
      | ModelChanged
      | Complete
      | Interrupted
      | Failed;
    canvas_update: CanvasUpdate;
    memory_update: MemoryUpdate;
    memory_result:
      | FilesResult
      | FileResult
      | HistoryResult
      | SearchResult
      | AroundResult
      | BootResult
      | LearningsResult
      | LoggedTurnResult
      | ActionsResult
      | EditResult
      | AcceptResult
      | RejectResult
      | AddActionResult
      | UpdateActionResult
      | ResolveActionResult
      | UserFilesResult
      | DeleteUserFileResult
      | ChangesResult
      | UndoResult
      | RetryResult
      | LearningResult
      | ForgetResult
      | CurationsResult
      | ObservationsResult
      | ChatResult
      | SessionsResult
      | RenameSessionResult
      | RulesResult
      | HealthResult;
    permission_request: PermissionRequest;
    permission_resolved: PermissionResolved;
    rule_offered: RuleOffered;
    rule_applied: RuleApplied;
    chat_said: ChatSaid;
    stack_update: StackUpdate;
    session_update: SessionUpdate;
    action_update: ActionUpdate;
    schedule_update: ScheduleUpdate;
    reach_result: ReachResult;
    observed: Observed;
    link: LinkState;
    connection_update: ConnectionUpdate;
  };
}
/**
 * The first frame of a page or terminal to the bridge, instead of `auth`; with its position if it reconnects.
 */
export interface ResumeFrom {
  epoch?: string | null;
  last_seq?: number | null;
}
/**
 * A message to the agent. The envelope's `id` is its idempotency key.
 *
 *     `asked_by` names the program that wrote it; such words never count as the person's. Only a person's own client
 *     may leave it out. `pasted` lists the parts of `text` that the person pasted: half-open, sorted, disjoint spans
 *     of Unicode code points. The model gets the `images` with the text.
 */
export interface Mission {
  text: string;
  stack_id?: string | null;
  asked_by?: string | null;
  pasted?: [number, number][];
  images?: Image[];
}
/**
 * A picture: base64 `data` of a `media_type`, or the `path` of an uploaded file.
 */
export interface Image {
  media_type?: string;
  data?: string | null;
  path?: string | null;
}
/**
 * Asks the sprite to run the actions that are due. It answers once these and all earlier missions have ended.
 */
export interface Heartbeat {}
/**
 * Stops the named turn, or removes the named mission from the queue.
 *
 *     Without a name, stops the running mission; if none runs, the agent's own turn and its background work.
 */
export interface Interrupt {
  mission_id?: string | null;
}
/**
 * Creates a note card on the given stack, by default on the visible one.
 */
export interface CreateCard {
  action: "create_card";
  title: string;
  blocks: NewBlock[];
  stack_id?: string | null;
  position?: Point | null;
  size?: Size | null;
}
/**
 * A block of a new card.
 */
export interface NewBlock {
  type: string;
  data: {
    [k: string]: unknown;
  };
}
/**
 * A position on the canvas, in pixels from its top left.
 */
export interface Point {
  x: number;
  y: number;
}
/**
 * The size of a card, in pixels.
 */
export interface Size {
  width: number;
  height: number;
}
/**
 * Replaces a block's data. `seen` is the version that the person edited; refused if there is a newer one.
 */
export interface UpdateBlock {
  action: "update_block";
  card_id: string;
  block_id: string;
  data: {
    [k: string]: unknown;
  };
  seen: number;
}
/**
 * Creates an empty stack.
 */
export interface CreateStack {
  action: "create_stack";
  name: string;
}
/**
 * Renames a stack.
 */
export interface RenameStack {
  action: "rename_stack";
  name: string;
  stack_id: string;
}
/**
 * Removes a stack from the canvas; it can be restored.
 */
export interface ArchiveStack {
  action: "archive_stack";
  stack_id: string;
}
/**
 * Restores an archived stack.
 */
export interface RestoreStack {
  action: "restore_stack";
  stack_id: string;
}
/**
 * Removes a card from the canvas; it can be restored.
 */
export interface ArchiveCard {
  action: "archive_card";
  card_id: string;
}
/**
 * Restores an archived card.
 */
export interface RestoreCard {
  action: "restore_card";
  card_id: string;
}
/**
 * Moves or resizes a card; missing fields stay.
 */
export interface MoveCard {
  action: "move_card";
  card_id: string;
  position?: Point | null;
  size?: Size | null;
}
/**
 * A chunk of a file in base64. Chunks come in order of `index`, from 0.
 */
export interface FileUpload {
  upload_id: string;
  name: string;
  index: number;
  last: boolean;
  data: string;
}
/**
 * Asks for the sizes of the memory files.
 */
export interface FilesRequest {
  op: "files";
}
/**
 * Asks for a memory file: the current version, version `version`, or the one at the time `as_of` (Unix seconds).
 *
 *     With a `project`, the answer is the part of the file that a session of that project gets.
 */
export interface FileRequest {
  op: "file";
  name: string;
  version?: number | null;
  as_of?: number | null;
  project?: string | null;
}
/**
 * Asks for every version of a memory file.
 */
export interface HistoryRequest {
  op: "history";
  name: string;
}
/**
 * Asks for the learnings and turns that match a question, best first.
 */
export interface SearchRequest {
  op: "search";
  query: string;
  limit?: number | null;
  project?: string | null;
}
/**
 * Asks for a turn with `before` turns before and `after` turns after it in its session; `not_found` without it.
 */
export interface AroundRequest {
  op: "around";
  turn: number;
  before?: number;
  after?: number;
}
/**
 * Asks for the boot prompt of a session (at most 8,000 tokens), of a `project` or of the person's own.
 */
export interface BootRequest {
  op: "boot";
  project?: string | null;
}
/**
 * Asks for learnings above the id `after`, oldest first; with `newest` or `before`, newest first.
 *
 *     With `line`, asks for the learnings that support this line of a memory file, best first.
 */
export interface LearningsRequest {
  op: "learnings";
  line?: string | null;
  after?: number | null;
  before?: number | null;
  limit?: number | null;
  newest?: boolean;
}
/**
 * Asks for a whole turn of the log, by its number or by its mission.
 */
export interface TurnRequest {
  op: "turn";
  id?: number;
  mission_id?: string | null;
}
/**
 * Asks for every action, most urgent first.
 */
export interface ActionsRequest {
  op: "actions";
}
/**
 * Replaces a memory file's content by the person's.
 *
 *     `version` is the version that the person edited; the answer is an error `conflict` if the file has a newer one.
 */
export interface EditRequest {
  op: "edit";
  name: string;
  content: string;
  version?: number | null;
}
/**
 * Accepts a memory file's drift, a change on disk while the agent worked, as the person's edit.
 *
 *     `curation_id` names the drift that the person saw; the answer is an error `conflict` if there is another one
 *     now.
 */
export interface AcceptRequest {
  op: "accept";
  name: string;
  curation_id?: number | null;
}
/**
 * Discards a file's drift and writes the file again from memory. `curation_id` as for `accept`.
 */
export interface RejectRequest {
  op: "reject";
  name: string;
  curation_id?: number | null;
}
/**
 * Adds an action. `due` is in Unix seconds, or a day or time in `tz` ("2026-12-01", "2026-12-01T09:00").
 *
 *     A day alone means 09:00. `rrule` is the recurrence (RFC 5545); `tz` is an IANA zone, by default the person's.
 */
export interface AddActionRequest {
  op: "add_action";
  content: string;
  due?: number | string | null;
  rrule?: string | null;
  tz?: string | null;
  priority?: number;
}
/**
 * Changes an action. Missing fields stay; an empty `due` or `rrule` removes it.
 *
 *     `version` as for `resolve_action`.
 */
export interface UpdateActionRequest {
  op: "update_action";
  id: number;
  content?: string | null;
  due?: number | string | null;
  rrule?: string | null;
  tz?: string | null;
  priority?: number | null;
  version?: number | null;
}
/**
 * Sets an action's status: open, done, dismissed or failed.
 *
 *     `version` is the version that the person saw. If the action has a newer one, the answer is an error `conflict`
 *     with the current `action`.
 */
export interface ResolveActionRequest {
  op: "resolve_action";
  id: number;
  status: string;
  version?: number | null;
}
/**
 * Asks for the files in the user's folders, or in one of them.
 */
export interface UserFilesRequest {
  op: "user_files";
  folder?: string | null;
}
/**
 * Deletes a file of the user's folders for good; `path` as listed.
 */
export interface DeleteUserFileRequest {
  op: "delete_user_file";
  path: string;
}
/**
 * Asks for the files that a turn changed, with diffs.
 *
 *     `turn` is the mission's id, the turn's number in the log, or the id of an undo; by default the newest turn that
 *     changed files. `not_found` for an unknown turn.
 */
export interface ChangesRequest {
  op: "changes";
  turn?: string | null;
}
/**
 * Undoes the file changes of a turn or of an earlier undo, named as in `changes`.
 *
 *     Without `paths`, undoes all changes except those that may be the person's own. `paths` and `over` name files or
 *     whole folders; `over` restores files that have changed since. `busy` while a turn runs.
 */
export interface UndoRequest {
  op: "undo";
  turn?: string | null;
  paths?: string[] | null;
  over?: string[];
}
/**
 * Makes a quarantined turn wait for curation again. `not_found` if it is not quarantined.
 */
export interface RetryRequest {
  op: "retry";
  turn_id: number;
}
/**
 * Confirms a learning as the person's own, retires it, or replaces its text by `content` (`edit`).
 *
 *     `retire` and `edit` also change the lines of memory files that rest on it. `not_found` if there is no such
 *     learning; `conflict` if it is no longer true or needs no confirmation.
 */
export interface LearningRequest {
  op: "learning";
  id: number;
  action: "confirm" | "edit" | "retire";
  content?: string;
}
/**
 * Forgets exactly one of these: a text everywhere, a turn, a session, or a learning.
 *
 *     `preview` only lists what would be removed. `yes` is the number of turns that the person agreed to remove.
 */
export interface ForgetRequest {
  op: "forget";
  text?: string | null;
  turn?: number | null;
  session?: string | null;
  learning?: number | null;
  preview?: boolean;
  yes?: boolean;
}
/**
 * Asks for the changes of memory (curations), newest first; with an id, only for those with a smaller id.
 */
export interface CurationsRequest {
  op: "curations";
  before?: number | null;
  limit?: number | null;
}
/**
 * Asks for turns of the log, newest first; with an id, only for those with a smaller id.
 */
export interface ObservationsRequest {
  op: "observations";
  before?: number | null;
  limit?: number | null;
}
/**
 * Asks for the newest chat messages; with an id, only for those with a smaller id.
 */
export interface ChatRequest {
  op: "chat";
  before?: number | null;
  limit?: number | null;
}
/**
 * Asks for sessions, the last used first, below a `position` if one is given.
 */
export interface SessionsRequest {
  op: "sessions";
  before?: number | null;
  limit?: number | null;
}
/**
 * Sets a session's title; an empty title brings back the first message as the title.
 */
export interface RenameSessionRequest {
  op: "rename_session";
  session_id: string;
  title: string;
}
/**
 * Asks for the rules about tool calls: offered, active, dismissed and retired.
 */
export interface RulesRequest {
  op: "rules";
}
/**
 * Asks for the size, state and cost of memory.
 */
export interface HealthRequest {
  op: "health";
}
/**
 * The person's answer to the open `permission_request` with this id.
 */
export interface Permission {
  request_id: string;
  decision: "allow" | "always" | "deny" | "session";
}
/**
 * The person's word on a rule about tool calls: never sent for a program.
 *
 *     `override` lets the call that the rule stopped last run once. `propose` has a new rule in one line as `text`, to be
 *     accepted like one of the curator's; with an `id`, it changes that rule.
 */
export interface Rule {
  action: ("accept" | "dismiss" | "override" | "retire") | "propose";
  id?: number | null;
  text?: string;
}
/**
 * A command: `status`, `new_session`, `resume_session`, `flush` (curate the waiting turns) and others.
 *
 *     The answer follows once it is done. `check_model` sends a request that is not billed. `revoke` removes the
 *     permission rule with this id, or all rules. `zone` sets the person's time zone `tz` (an IANA name). `go_on`
 *     continues a paused session; with `raise_limit`, the bridge first adds one daily budget to today's limit. `model`
 *     sets the session's model and effort; null means the default, and missing fields stay.
 */
export interface System {
  action: "check_model" | "flush" | "go_on" | "model" | "new_session" | "resume_session" | "revoke" | "status" | "zone";
  session_id?: string | null;
  rule_id?: string | null;
  tz?: string | null;
  raise_limit?: boolean;
  model?: string | null;
  effort?: ("high" | "low" | "max" | "medium" | "xhigh") | null;
}
/**
 * Asks which hosts the agent may reach. `revoke` first removes the rule for a host and ends its connections.
 */
export interface Reach {
  revoke?: string | null;
}
/**
 * Turns of one program and one project (null: the person's own), oldest first.
 */
export interface Observe {
  source: string;
  turns: ObservedTurn[];
  project?: string | null;
}
/**
 * A turn that has ended. `external_id` is its permanent id; it ran from `started_at` to `at`.
 *
 *     `user` is the person's message. It is empty if nobody wrote one (a background task has ended); `notice` then has
 *     the reason.
 */
export interface ObservedTurn {
  external_id: string;
  session: string;
  at: number;
  user?: string;
  tools?: ObservedTool[];
  reply?: string;
  outcome?: "complete" | "crashed" | "error" | "interrupted" | "max_turns";
  notice?: string;
  started_at?: number | null;
}
/**
 * A tool call of an observed turn. Its texts are cut and redacted as in any turn.
 */
export interface ObservedTool {
  name: string;
  tool_use_id?: string;
  input?: {
    [k: string]: unknown;
  };
  result?: {
    [k: string]: unknown;
  };
  is_error?: boolean;
  agent_id?: string | null;
}
/**
 * Keeps a network path open. It has no answer.
 */
export interface Ping {}
/**
 * Accepts a connection; `limits` are in bytes and characters.
 */
export interface AuthOk {
  protocol: number;
  server_version: string;
  epoch: string;
  last_seq: number;
  limits: {
    [k: string]: number;
  };
}
/**
 * Confirms a message of the client; the type of that message decides which other fields are set.
 */
export interface Ack {
  status: "accepted" | "done" | "duplicate" | "queued";
  position?: number | null;
  path?: string | null;
  upload_id?: string | null;
  index?: number | null;
  stack_id?: string | null;
  card_id?: string | null;
  mission_id?: string | null;
  stopped?: Stopped[] | null;
}
/**
 * The stopped work: a person's mission, a turn that the agent had begun by itself, or background work.
 */
export interface Stopped {
  id: string;
  kind: ("mission" | "turn") | ("agent" | "command" | "task");
}
/**
 * A fault in words for people. After a conflict, `block` or `action` is the current version.
 *
 *     `newest` is the epoch of the newest lease, for a bridge that is refused because its lease is older.
 */
export interface Error {
  code: string;
  message: string;
  block?: Block | null;
  newest?: number;
  action?: ActionRow;
}
/**
 * A part of a card. `version` counts its changes from 1; `by` made the last one.
 */
export interface Block {
  id: string;
  type: string;
  data: {
    [k: string]: unknown;
  };
  version?: number;
  by?: "agent" | "person";
}
/**
 * An action: a to-do or reminder. `status` is open, done, dismissed or failed.
 *
 *     `due` is when it fires next and `fired_at` when it last fired, in Unix seconds. `rrule` is its recurrence (RFC
 *     5545), computed in `tz`, an IANA zone. `origin` is its author: curator, person, agent, or schedule (the agent in
 *     a scheduled turn). `history` is oldest first. `version` grows with each change.
 */
export interface ActionRow {
  id: number;
  created_at: number;
  content: string;
  priority: number;
  status: string;
  source_learning_id: number | null;
  due?: number | null;
  rrule?: string | null;
  tz?: string | null;
  fired_at?: number | null;
  origin?: string;
  history?: ActionChange[];
  version?: number;
}
/**
 * An entry of an action's history: time, author (curator, person, agent, schedule, sprite), and change.
 */
export interface ActionChange {
  at: number;
  by: string;
  what: string;
}
/**
 * The whole state that a client needs to draw itself.
 *
 *     `permissions` are the open questions. `running` is what the current turn has shown so far. `queued` are the ids
 *     of the waiting missions, in order. `model` is null until it is known. If a mission waits for a turn that the
 *     agent began by itself, `running` is that turn, and `session` names the mission.
 */
export interface StateSync {
  stacks: Stack[];
  cards: Card[];
  chat: ChatMessage[];
  session: SessionState;
  memory: MemoryState;
  permissions: PermissionRequest[];
  running: Running | null;
  queued: string[];
  model: string | null;
  next_due?: NextDue | null;
  tz?: string;
}
/**
 * A tab of the canvas.
 */
export interface Stack {
  stack_id: string;
  name: string;
  archived: boolean;
}
/**
 * A card on a stack.
 */
export interface Card {
  card_id: string;
  stack_id: string;
  title: string;
  card_type: string;
  position: Point | null;
  size: Size | null;
  blocks: Block[];
  archived: boolean;
}
/**
 * One message of the chat; `at` in Unix seconds.
 *
 *     `tools` are the turn's tool calls, in order; a reply with tools may have no text. `status` is the state of its
 *     turn, null if no turn is known. `asked_by` names the program that wrote the message. `pasted` lists the parts
 *     that the person pasted, as in `mission`. `changes` counts the files that its turn changed; `undone`: some were
 *     undone. `duration_ms` and `cost_usd` are null if unknown. `found` are the hits of its searches of memory.
 */
export interface ChatMessage {
  id: number;
  role: "assistant" | "error" | "user";
  text: string;
  at: number;
  mission_id: string | null;
  origin?: "agent" | "person" | "schedule";
  tools?: UsedTool[];
  status?: ("complete" | "error" | "interrupted" | "queued" | "running") | null;
  asked_by?: string | null;
  pasted?: [number, number][];
  changes?: FileCounts | null;
  undone?: boolean;
  session_id?: string | null;
  duration_ms?: number | null;
  cost_usd?: number | null;
  found?: FoundHit[];
}
/**
 * A tool call of a turn, cut; `title` is its purpose.
 *
 *     `tool_use_id` finds the whole call in the log; `answer` is the person's answer if the call was asked.
 */
export interface UsedTool {
  name: string;
  title: string;
  is_error: boolean;
  tool_use_id?: string;
  answer?: ("allow" | "always" | "deny" | "session") | null;
}
/**
 * The numbers of files that a turn added, changed and deleted; folders do not count.
 */
export interface FileCounts {
  added: number;
  modified: number;
  deleted: number;
}
/**
 * A hit of a search of memory that the agent made in a turn; `turn` is the turn that the hit is or comes from.
 */
export interface FoundHit {
  kind: "learning" | "turn";
  id: number;
  type: string;
  at: number;
  text: string;
  turn?: number | null;
}
/**
 * The current session; `session_id` is null until its first mission.
 *
 *     `running_mission_id` is the running turn: a person's, or else one that the agent began by itself. `busy`: a turn
 *     runs or a mission waits. `background` is the work beside turns, oldest first; `held_until` (Unix seconds) is
 *     when it stops keeping a VM awake, null without such work. `slow` is the work that has lasted longer than a
 *     minute. While it is `paused`, the agent waits for the person. `model` is null until it is known; `effort` is the
 *     person's choice. `label` says whether the session has read untrusted content, `sources` from where: `web:HOST`,
 *     `network:HOST`, `tool:NAME`, `file:PATH`, `program:NAME`, `memory` or `paste`. `label_note` says what follows here,
 *     and `label_binds` whether the person is asked before words from outside act.
 */
export interface SessionState {
  session_id: string | null;
  started_at: number | null;
  turns: number;
  running_mission_id: string | null;
  queued: number;
  busy?: boolean;
  background?: BackgroundWork[];
  held_until?: number | null;
  slow?: SlowWork[];
  paused?: Paused | null;
  model?: string | null;
  effort?: ("high" | "low" | "max" | "medium" | "xhigh") | null;
  label?: "clean" | "exposed";
  sources?: string[];
  label_note?: string;
  label_binds?: boolean;
}
/**
 * Work of the agent that runs beside its turns; `since` in Unix seconds.
 */
export interface BackgroundWork {
  id: string;
  kind: "agent" | "command" | "task";
  title: string;
  since: number;
}
/**
 * Work that has lasted longer than a minute; `since` in Unix seconds.
 *
 *     `turn` is the running turn, `queue` the message that has waited longest, `model_call` a model call without an
 *     answer.
 */
export interface SlowWork {
  kind: "model_call" | "queue" | "turn";
  since: number;
}
/**
 * The reason why the agent may not continue by itself: `why` in words, `since` in Unix seconds.
 *
 *     `by` is the limit that was reached: turns, money, or the budget of the day or `month`. The person can raise the
 *     day's.
 */
export interface Paused {
  why: string;
  by: "budget" | "cost" | "month" | "turns";
  since: number;
}
/**
 * The number of learnings, of turns, and of turns that wait for curation.
 *
 *     `quarantined` are the turns that curation gave up on, oldest first; a person can `retry` them. `drift` names the
 *     files that changed on disk while the agent worked and wait for the person. `unshipped_forgets` counts forgets
 *     that the bridge's replica has not confirmed.
 */
export interface MemoryState {
  files: FileState[];
  learnings: number;
  turns: number;
  waiting: number;
  spend_usd: number;
  quarantined?: QuarantinedTurn[];
  drift?: string[];
  unshipped_forgets?: number;
}
/**
 * The size of a memory file in lines; `managed` says who writes it.
 */
export interface FileState {
  name: string;
  lines: number;
  limit: number;
  managed: "curated" | "deploy";
  updated_at: number | null;
}
/**
 * A turn that curation gave up on, because every model call about it failed; `at` in Unix seconds.
 */
export interface QuarantinedTurn {
  turn_id: number;
  reason: string;
  at: number;
}
/**
 * A tool call that waits for a person's answer.
 *
 *     `mission_id` is the turn that made the call. The question of a `background` agent stays open after its turn,
 *     until the background work ends. `input` is the whole input of the call. `folder` is set if it runs outside the
 *     workspace; `real_path` is set if its `file_path` leads elsewhere. `always` describes what "always" would allow;
 *     if it is null, "always" means once. For the tool `network`, the host is in `input`: "allow" holds for the turn,
 *     `session` describes what "session" would allow, and "always" holds until it is revoked. `redacted` marks the
 *     stored copy of a closed question: parts of its input may be missing, and it cannot be allowed. `tool_use_id` is
 *     the waiting call. `exposed`: the session has read untrusted content, and earlier rules do not apply; `foreign`
 *     are the words of the input that come from there. `rule` names the person's rule that asks.
 */
export interface PermissionRequest {
  request_id: string;
  mission_id: string | null;
  tool: string;
  input: {
    [k: string]: unknown;
  };
  background?: boolean;
  folder?: string | null;
  real_path?: string | null;
  always?: string | null;
  session?: string | null;
  redacted?: boolean;
  tool_use_id?: string | null;
  kind?: "connection" | "host" | "rule" | "tool";
  exposed?: boolean;
  foreign?: ForeignSpan[];
  rule?: string | null;
}
/**
 * Words of a question's input that come from untrusted content, by code points from `start` to `end`.
 *
 *     `field` is the path of the text in the input, such as `command` or `arguments.to.0`. `source` is one of the
 *     session's sources, or `unknown` for an address or a number that nobody gave.
 */
export interface ForeignSpan {
  field: string;
  start: number;
  end: number;
  source: string;
}
/**
 * The progress of a turn: its durable events (the newest ones if they are many), then its unfinished text.
 */
export interface Running {
  mission_id: string;
  events: (
    | Started
    | TextDelta
    | Thinking
    | WholeText
    | ToolUse
    | ToolResult
    | ToolOutput
    | Compacting
    | Compacted
    | ModelChanged
    | Complete
    | Interrupted
    | Failed
  )[];
  partial: string;
}
/**
 * A turn began; `origin` says who began it. A turn of the agent's own may run while a mission waits for it.
 *
 *     With an `attempt` above 1, the sprite begins the turn again, because it was cut off before its first tool call.
 *     The client discards the text of the earlier attempt.
 */
export interface Started {
  event: "started";
  mission_id: string | null;
  origin?: "agent" | "person" | "schedule";
  attempt?: number;
  session_id?: string | null;
}
/**
 * The next piece of a text. Not durable, because the whole text follows.
 */
export interface TextDelta {
  event: "text_delta";
  mission_id: string | null;
  text: string;
}
/**
 * The next piece of the model's visible thoughts. Not durable.
 */
export interface Thinking {
  event: "thinking";
  mission_id: string | null;
  text: string;
}
/**
 * A complete text of the agent.
 */
export interface WholeText {
  event: "text";
  mission_id: string | null;
  text: string;
}
/**
 * The agent calls a tool. A large input is cut.
 */
export interface ToolUse {
  event: "tool_use";
  mission_id: string | null;
  tool_use_id: string;
  name: string;
  input: {
    [k: string]: unknown;
  };
}
/**
 * A tool has returned; the result is cut.
 */
export interface ToolResult {
  event: "tool_result";
  mission_id: string | null;
  tool_use_id: string;
  is_error: boolean;
  summary: string;
}
/**
 * The last lines of a running command's output; they replace the earlier ones. Not durable.
 */
export interface ToolOutput {
  event: "tool_output";
  mission_id: string | null;
  tool_use_id: string;
  text: string;
}
/**
 * The conversation is too long, and the CLI begins to summarise it.
 */
export interface Compacting {
  event: "compacting";
  mission_id: string | null;
}
/**
 * The CLI has summarised the conversation.
 */
export interface Compacted {
  event: "compacted";
  mission_id: string | null;
}
/**
 * Another model answers from now on, because the previous one declined or is unavailable; `text` is for people.
 */
export interface ModelChanged {
  event: "model_changed";
  mission_id: string | null;
  model: string;
  text: string;
}
/**
 * The mission is done. `usage` and the cost are null if unknown.
 *
 *     `memory_found` are the hits of its searches of memory, cut.
 */
export interface Complete {
  event: "complete";
  mission_id: string | null;
  text: string;
  usage: Usage | null;
  cost_usd: number | null;
  duration_ms: number;
  changes?: FileCounts | null;
  memory_found?: FoundHit[];
}
/**
 * Tokens of a turn, and US dollars: `settled_usd` as reported, `estimated_usd` for calls that were cut off.
 */
export interface Usage {
  input_tokens?: number;
  output_tokens?: number;
  cache_creation_input_tokens?: number;
  cache_read_input_tokens?: number;
  settled_usd?: number | null;
  estimated_usd?: number;
}
/**
 * A person stopped the mission. If the sprite itself stopped, its mission ends with `error` (`crashed`).
 */
export interface Interrupted {
  event: "interrupted";
  mission_id: string | null;
  changes?: FileCounts | null;
}
/**
 * The mission failed, in words for people. `retryable`: sending it again may work.
 *
 *     `action` is what helps. `details` is the original text of an unknown failure; clients show it folded.
 */
export interface Failed {
  event: "error";
  mission_id: string | null;
  code: string;
  message: string;
  retryable: boolean;
  action?: ("change" | "new_session" | "raise_limit" | "retry" | "settings") | null;
  details?: string;
  changes?: FileCounts | null;
}
/**
 * The next action to fire; `at` in Unix seconds.
 */
export interface NextDue {
  action_id: number;
  at: number;
}
/**
 * The sprite has deleted events that the client asked to replay; those from `oldest_seq` on remain.
 *
 *     A `state_sync` follows.
 */
export interface Gap {
  oldest_seq: number;
}
/**
 * The answer to a `system` message. `stopped` is what `new_session` stopped in the previous session.
 */
export interface Status {
  action: string;
  session: SessionState;
  memory: MemoryState;
  last_error: string | null;
  permissions: string;
  model: string | null;
  model_answers?: boolean | null;
  model_words?: string | null;
  stopped?: Stopped[] | null;
  rules?: StandingRule[];
  next_due?: NextDue | null;
  tz?: string;
  spend?: Spend | null;
  models?: string[];
}
/**
 * A permission that holds without a question until the session ends; `at` in Unix seconds.
 *
 *     `words` are those of the question ("always allow this command"); `command` is set if it is about a command.
 */
export interface StandingRule {
  rule_id: string;
  words: string;
  command: string;
  at: number;
}
/**
 * The costs of today (UTC), of this session and of the newest turn; null where nothing of them is known.
 *
 *     `plan` lists the limits of the Claude plan that pays instead, as far as they are known.
 */
export interface Spend {
  today: Costs;
  session: Costs;
  turn?: Cost | null;
  plan?: PlanLimit[] | null;
}
/**
 * The costs of the agent, of schedules and of memory.
 */
export interface Costs {
  agent: Cost;
  schedules: Cost;
  memory: Cost;
}
/**
 * US dollars: `settled` as reported, `estimated` for calls that were cut off or that have no known price.
 */
export interface Cost {
  settled?: number;
  estimated?: number;
}
/**
 * A limit of a Claude plan: its name, the part that is used (0 to 1), and its reset in Unix seconds.
 */
export interface PlanLimit {
  name: string;
  used: number;
  resets_at: number;
}
/**
 * A card was drawn or changed; `close_card` means that it left the canvas.
 */
export interface CanvasUpdate {
  command: "close_card" | "create_card" | "update_card";
  card_id: string;
  stack_id: string;
  title: string;
  card_type: string;
  blocks: Block[];
  position?: Point | null;
  size?: Size | null;
}
/**
 * Memory changed: the names of the changed files, the new learnings, and the curation that made them.
 *
 *     `drift` names every file whose drift waits for the person. `answered` are earlier learnings that the person
 *     confirmed or retired.
 */
export interface MemoryUpdate {
  files: string[];
  learnings: LearningRow[];
  curation_id: number;
  drift?: string[];
  answered?: LearningRow[];
}
/**
 * A learning with its evidence; `superseded_by` is the id of the learning that replaced it.
 *
 *     It is 0 if the person retired the learning. `project` is null for the person's own. `proposed` is the type that
 *     the learning gets if the person confirms it, null if it need not be confirmed.
 */
export interface LearningRow {
  id: number;
  created_at: number;
  session_id: string | null;
  type: string;
  content: string;
  source_observation_id: number | null;
  confidence: number;
  curation_id: number;
  origin: string;
  evidence: string | null;
  superseded_by: number | null;
  seen: number;
  last_seen: number;
  project?: string | null;
  proposed?: string | null;
}
/**
 * The sizes of the memory files, in the order of the boot prompt.
 */
export interface FilesResult {
  op: "files";
  files: FileState[];
}
/**
 * The content of a memory file; `version` is 0 until its first change.
 *
 *     `drift` is the content on disk if it changed while the agent worked; the person must accept or reject it.
 *     `drifted` has the time and the curation that found it.
 */
export interface FileResult {
  op: "file";
  name: string;
  content: string;
  version: number;
  drift?: string | null;
  drifted?: Drifted | null;
}
/**
 * A memory file whose change waits for the person: since when, and the curation that found it.
 */
export interface Drifted {
  name: string;
  at: number;
  curation_id: number;
}
/**
 * A file's versions, oldest first.
 */
export interface HistoryResult {
  op: "history";
  name: string;
  history: VersionRow[];
}
/**
 * A version of a memory file; `source` is curator or person.
 */
export interface VersionRow {
  version: number;
  curation_id: number;
  at: number;
  lines: number;
  source: string;
}
/**
 * Search hits in rank order. Learnings exist up to turn `indexed_through`; `waiting` turns are not curated yet.
 *
 *     `notes` are sentences: which filter excluded everything, and how much of memory the search by meaning covers.
 */
export interface SearchResult {
  op: "search";
  hits: SearchHit[];
  indexed_through: number;
  waiting: number;
  notes?: string[];
}
/**
 * A result of a search of memory; `turn_id` is the turn itself or the learning's turn.
 *
 *     `type` is the learning's type, or TURN. `project` is left out for the person's own. `unverified` marks a
 *     learning that neither evidence nor the person has confirmed. `undone`: the file changes of its turn were undone.
 */
export interface SearchHit {
  kind: "learning" | "turn";
  id: number;
  type: string;
  at: number;
  session_id: string | null;
  turn_id: number | null;
  text: string;
  superseded_by?: number | null;
  origin?: string | null;
  project?: string | null;
  unverified?: boolean;
  undone?: boolean;
}
/**
 * Turns of one session, oldest first.
 */
export interface AroundResult {
  op: "around";
  turns: LoggedTurn[];
}
/**
 * A whole turn of the log. `tool_calls` of another program may be any JSON.
 *
 *     It waits for curation unless it is `processed`, `quarantined` or `off_record` (the person asked not to remember
 *     it). `project` is null for the person's own. `source` is the program in which it was said, null for this sprite.
 *     If `trigger` is "program", the program `asked_by` wrote `user_message`.
 */
export interface LoggedTurn {
  id: number;
  timestamp: number;
  session_id: string;
  sequence_num: number;
  user_message: string;
  tool_calls: unknown[];
  agent_response: string;
  processed: boolean;
  outcome: string;
  mission_id: string | null;
  trigger: string;
  notice: string;
  quarantined: boolean;
  off_record?: boolean;
  project?: string | null;
  source?: string | null;
  asked_by?: string | null;
}
/**
 * The boot prompt, framed as data for a model; empty while there is no memory.
 */
export interface BootResult {
  op: "boot";
  text: string;
}
/**
 * Learnings, in the requested order.
 */
export interface LearningsResult {
  op: "learnings";
  learnings: LearningRow[];
}
/**
 * One turn of the log.
 */
export interface LoggedTurnResult {
  op: "turn";
  turn: LoggedTurn;
}
/**
 * Every action.
 */
export interface ActionsResult {
  op: "actions";
  actions: ActionRow[];
}
/**
 * The file after the edit.
 */
export interface EditResult {
  op: "edit";
  name: string;
  content: string;
  version: number;
}
/**
 * The file after its drift was accepted.
 */
export interface AcceptResult {
  op: "accept";
  name: string;
  content: string;
  version: number;
}
/**
 * The file after its drift was discarded.
 */
export interface RejectResult {
  op: "reject";
  name: string;
  content: string;
  version: number;
}
/**
 * The new action, and the list of all actions.
 */
export interface AddActionResult {
  op: "add_action";
  action: ActionRow;
  actions: ActionRow[];
}
/**
 * The changed action, and the list of all actions after the change.
 */
export interface UpdateActionResult {
  op: "update_action";
  action: ActionRow;
  actions: ActionRow[];
}
/**
 * The list of all actions after the change.
 */
export interface ResolveActionResult {
  op: "resolve_action";
  actions: ActionRow[];
}
/**
 * The files, newest first; `more` is the number of files not listed.
 */
export interface UserFilesResult {
  op: "user_files";
  files: UserFile[];
  more?: number;
}
/**
 * A file in a user's folder: `path` from the workspace, `size` in bytes, time in Unix seconds.
 */
export interface UserFile {
  path: string;
  size: number;
  modified_at: number;
}
/**
 * The path of the file that was deleted.
 */
export interface DeleteUserFileResult {
  op: "delete_user_file";
  path: string;
}
/**
 * The files that a turn or an undo changed (a change set).
 *
 *     `turn` is the change set's id, `turn_id` the turn's number in the log, `at` its time in Unix seconds, `more` the
 *     number of files not listed. `undoes` is the change set that this undo reverted; `undone_by` is the undo that
 *     reverted this one.
 */
export interface ChangesResult {
  op: "changes";
  turn: string;
  turn_id: number | null;
  at: number;
  files: ChangedFile[];
  more?: number;
  undoes?: string | null;
  undone_by?: string | null;
}
/**
 * A file that a turn changed. Sizes are in bytes, modes as in `ls`; null where the file did not exist.
 *
 *     A path with a slash at its end is a folder that is not searched (not `kept`), or a git repository, which is
 *     shown and undone as a whole. Not `kept`: its content cannot be restored. `yours`: the person may have changed
 *     it, so it is undone only by name. `undone`: it was undone. `diff` is a unified diff of text; previews are
 *     `data:` URLs of small images.
 */
export interface ChangedFile {
  path: string;
  kind: "added" | "deleted" | "modified";
  kept: boolean;
  yours?: boolean;
  undone?: boolean;
  size_before?: number | null;
  size?: number | null;
  mode_before?: string | null;
  mode?: string | null;
  diff?: string | null;
  preview_before?: string | null;
  preview?: string | null;
}
/**
 * The paths that an undo restored, and those that it left, by reason.
 *
 *     The reasons are: changed since, maybe the person's change, or no content kept. `undo` is the undo's id, by which
 *     it can be undone; null if nothing was restored.
 */
export interface UndoResult {
  op: "undo";
  turn: string;
  undo: string | null;
  restored: string[];
  conflicts: string[];
  yours: string[];
  unkept: string[];
}
/**
 * The turns that are still quarantined.
 */
export interface RetryResult {
  op: "retry";
  quarantined: QuarantinedTurn[];
}
/**
 * The learning after the change; after an `edit`, the learning that replaced it.
 */
export interface LearningResult {
  op: "learning";
  learning: LearningRow;
}
/**
 * The text that would be removed, or that was removed.
 *
 *     `done`: the text is removed, also from the bridge's replica if there is one. It is false if the replica did not
 *     confirm in time; `forgotten.still` then says so, and the sprite repeats the order until it is confirmed.
 */
export interface ForgetResult {
  op: "forget";
  forgotten: Forgotten;
  done: boolean;
}
/**
 * The texts that a forget removes: their numbers, and a list (`gone`) with `more` unlisted ones.
 *
 *     `still` lists what a search of every store found afterwards; empty if all is removed. In a preview it lists what
 *     the forget would leave: deployed files, the person's own files, and learnings that say more.
 */
export interface Forgotten {
  by: string;
  turns: number[];
  learnings: number;
  curations: number;
  lines: number;
  cards: number;
  gone?: Place[];
  more?: number;
  still?: Place[];
}
/**
 * A text that a forget found, and `where` in words: "user.md", "learning 4", "turn 7, the reply".
 */
export interface Place {
  where: string;
  text: string;
}
/**
 * Curations, newest first.
 */
export interface CurationsResult {
  op: "curations";
  curations: CurationRow[];
}
/**
 * A change of memory: a batch of turns, an edit, a forget, a drift, or the begin or end of a quarantine (`kind`).
 *
 *     `detail` is the subject if it is no batch. `active` is false if a later extraction has replaced it.
 */
export interface CurationRow {
  id: number;
  at: number;
  kind: string;
  model: string | null;
  first_turn: number | null;
  last_turn: number | null;
  turns: number;
  learnings: number;
  files: MadeVersion[];
  cost_usd: number | null;
  tokens: TokenCount;
  rejected: Rejected[];
  detail: {
    [k: string]: unknown;
  };
  active: boolean;
}
/**
 * A version of a file that a curation made.
 */
export interface MadeVersion {
  name: string;
  version: number;
}
/**
 * Tokens of one call to a model; null where they were not counted.
 */
export interface TokenCount {
  input: number | null;
  output: number | null;
}
/**
 * A refused part of a curation, with the reason.
 */
export interface Rejected {
  kind: string;
  detail: string;
}
/**
 * The asked-for page of the log's turns (observations), newest first.
 */
export interface ObservationsResult {
  op: "observations";
  observations: TurnRow[];
}
/**
 * A turn in a list: its texts are cut, and `tools` are the names of its calls.
 */
export interface TurnRow {
  id: number;
  at: number;
  session_id: string;
  sequence_num: number;
  user_message: string;
  agent_response: string;
  tools: string[];
  outcome: string;
  trigger: string;
  mission_id: string | null;
  curated: boolean;
  quarantined: boolean;
  off_record?: boolean;
  project?: string | null;
  source?: string | null;
  asked_by?: string | null;
}
/**
 * The newest chat messages that fit one frame, oldest first.
 */
export interface ChatResult {
  op: "chat";
  chat: ChatMessage[];
}
/**
 * Sessions.
 */
export interface SessionsResult {
  op: "sessions";
  sessions: SessionRow[];
}
/**
 * A session in a list. `title` is the person's title or the first message; times are Unix seconds.
 *
 *     `mission_id` is its first mission; `position` orders the list.
 */
export interface SessionRow {
  session_id: string;
  title: string;
  started_at: number;
  last_at: number;
  turns: number;
  mission_id: string;
  position: number;
}
/**
 * The renamed session.
 */
export interface RenameSessionResult {
  op: "rename_session";
  session_id: string;
}
/**
 * The rules, oldest first.
 */
export interface RulesResult {
  op: "rules";
  rules: RuleRow[];
}
/**
 * A rule about tool calls; `status` is offered, active, dismissed or retired.
 *
 *     `words` is the rule in one line, `turn` and `quote` its evidence. Of `checked` calls in the log it is about `stops`,
 *     of which the person had asked for `asked`. `instead_of` is the rule that it replaces once it is accepted. Since the
 *     rule last stopped a call for good, the person has overridden it `overrides` times; `last` is its newest event.
 *     `doubt` says why it may retire, or is empty.
 */
export interface RuleRow {
  id: number;
  words: string;
  action: "ask" | "stop";
  reason: string;
  turn: number | null;
  quote: string;
  instead_of: number | null;
  examples: RuleExample[];
  checked: number;
  stops: number;
  asked: number;
  status: string;
  accepted_at: number | null;
  used_at: number | null;
  uses: number;
  overrides: number;
  last: string;
  doubt: string;
}
/**
 * A past tool call that a rule would have stopped or asked about. `asked`: the person's message names such a call.
 *
 *     Not `certain`: the log does not record everything that the rule depends on, such as the branch.
 */
export interface RuleExample {
  turn: number;
  at: number;
  tool: string;
  input: {
    [k: string]: string;
  };
  asked: boolean;
  certain: boolean;
}
/**
 * The size, state and cost of memory.
 */
export interface HealthResult {
  op: "health";
  health: Health;
}
/**
 * The size, state and cost of memory; spend in US dollars, as far as prices are known.
 */
export interface Health {
  sessions: number;
  turns: number;
  waiting: number;
  learnings: number;
  unverified: number;
  open_actions: number;
  curations: number;
  last_curation_at: number | null;
  files: FileState[];
  spend_today_usd: number;
  spend_usd: number;
  usd_per_100_turns: number | null;
  calls_of_unknown_price: number;
  refusals: Refusal[];
  daily_cap_usd: number | null;
  last_error: string | null;
  quarantined: QuarantinedTurn[];
  attention: string[];
  drift?: Drifted[];
  spend?: Spend | null;
}
/**
 * A part of a curation that was refused: the curation's id, the kind of refusal, and the details.
 */
export interface Refusal {
  curation_id: number;
  kind: string;
  detail: string;
}
/**
 * A question was closed; `decision` is null if no answer came in time.
 */
export interface PermissionResolved {
  request_id: string;
  decision: ("allow" | "always" | "deny" | "session") | null;
}
/**
 * A rule was offered to the person, or its status changed.
 */
export interface RuleOffered {
  rule: RuleRow;
}
/**
 * A rule applied to a call: `said` is the text for the agent, and `did` the outcome.
 *
 *     `passed`: the person had let the call run once. `allowed` and `denied` are their answers to a rule that asks.
 */
export interface RuleApplied {
  rule_id: number;
  mission_id: string | null;
  did: "allowed" | "denied" | "passed" | "stopped";
  said: string;
}
/**
 * The sprite accepted a mission: its text for the chat; `at` in Unix seconds. The agent's reply follows as events.
 *
 *     `origin` says whether a person, a schedule or a program sent it; `asked_by` names the program. `pasted` lists
 *     the parts of the text that the person pasted, as in `mission`.
 */
export interface ChatSaid {
  mission_id: string;
  role: "user";
  text: string;
  at: number;
  origin?: "agent" | "person" | "schedule";
  asked_by?: string | null;
  pasted?: [number, number][];
}
/**
 * A stack was created, renamed, archived or restored.
 */
export interface StackUpdate {
  stack_id: string;
  name: string;
  archived: boolean;
}
/**
 * The current session changed: background work began or ended, or its pause or model changed.
 */
export interface SessionUpdate {
  session: SessionState;
}
/**
 * The current state of an action that was created, changed, fired or closed.
 */
export interface ActionUpdate {
  action: ActionRow;
}
/**
 * The next time at which the sprite must be awake; null if nothing is due.
 */
export interface ScheduleUpdate {
  next_due: NextDue | null;
}
/**
 * The answer to `reach`. `sandbox` names its protections; `holds` is null until the first start has tested them.
 *
 *     `writable` are the folders that the agent may write. `mode` is the value of SPRITE_EGRESS. `registries` are
 *     allowed in the modes `ask` and `packages`.
 */
export interface ReachResult {
  mode: "ask" | "bridge" | "open" | "packages";
  holds: boolean | null;
  sandbox: string;
  writable: string[];
  allowed: AllowedHost[];
  hosts: ReachedHost[];
  registries: string[];
}
/**
 * A host that the person allowed `until` the end of the turn or session, or always; `at` is in Unix seconds.
 *
 *     `message` is the beginning of the message whose turn asked for the host.
 */
export interface AllowedHost {
  host: string;
  until: "always" | "session" | "turn";
  at?: number | null;
  message?: string | null;
}
/**
 * Connections to a host with the same decision; bytes as the agent sees them, `last_at` in Unix seconds.
 *
 *     `decision` is why they were allowed (the model's endpoint, a package registry, open egress, the person's answer)
 *     or that they were refused. `message` is the beginning of the message whose turn made the last one. `open` is the
 *     number of open connections, which only a running sprite knows.
 */
export interface ReachedHost {
  host: string;
  port: number;
  decision: string;
  connections: number;
  sent: number;
  received: number;
  last_at: number;
  message: string | null;
  open?: number;
}
/**
 * The number of turns written, the number already in the log, and the refused ones.
 */
export interface Observed {
  stored: number;
  known: number;
  refused: RefusedTurn[];
}
/**
 * A refused turn, with the reason in words.
 */
export interface RefusedTurn {
  external_id: string;
  why: string;
}
/**
 * The state of the bridge's connection to the sprite, for pages and terminals, with words if they help.
 *
 *     `offer` is what the person may ask of the bridge; `as_of` is the time of the replica. `restore`: the agent's
 *     machine is gone. `choose`: the agent has less data than the replica, or another log, and the person decides
 *     which one to use.
 */
export interface LinkState {
  state: "connecting" | "ready" | "unavailable" | "updating" | "waking";
  detail: string;
  offer?: ("choose" | "restore") | null;
  as_of?: number | null;
}
/**
 * From the bridge to its pages and terminals: the person's connections as they now are.
 */
export interface ConnectionUpdate {
  connections: Connection[];
}
/**
 * A person's connection to an MCP server. `tools` are the names of those that the agent may use.
 *
 *     `state`: `new` was not reached yet, `login` waits for the person to log in at the server. `detail` says what failed.
 *     `is_on`: the agent may use it where labels do not bind, too.
 */
export interface Connection {
  name: string;
  kind: "local" | "remote";
  address: string;
  state: "failed" | "login" | "new" | "ready";
  detail: string;
  tools: string[];
  changed: ChangedTool[];
  pinned: string[];
  is_on: boolean;
  calls_today: number;
  daily: number;
}
/**
 * A tool of a connected MCP server that waits for the person's agreement.
 *
 *     It is new (`before` is null), or its description has changed since they agreed to `before`. To agree, the client
 *     sends the `digest`, which covers everything that the server says about the tool.
 */
export interface ChangedTool {
  name: string;
  description: string;
  before: string | null;
  digest: string;
}
