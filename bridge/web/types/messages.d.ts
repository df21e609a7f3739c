// Made by tools/page_types.py from sprite/protocol/; change it there, then `make types`.

export interface Messages {
  sent: {
    resume: ResumeFrom;
    mission: Mission;
    heartbeat: Heartbeat;
    interrupt: Interrupt;
    canvas_interaction:
      | CreateStack
      | RenameStack
      | ArchiveStack
      | RestoreStack
      | CreateCard
      | UpdateBlock
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
      | HealthRequest;
    permission: Permission;
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
      | HealthResult;
    permission_request: PermissionRequest;
    permission_resolved: PermissionResolved;
    chat_said: ChatSaid;
    stack_update: StackUpdate;
    session_update: SessionUpdate;
    action_update: ActionUpdate;
    schedule_update: ScheduleUpdate;
    reach_result: ReachResult;
    observed: Observed;
    link: LinkState;
  };
}
/**
 * The first frame of a page or a terminal to the bridge, instead of `auth`: where it left off, if it was here.
 */
export interface ResumeFrom {
  epoch?: string | null;
  last_seq?: number | null;
}
/**
 * A message to the agent; the envelope's `id` is its idempotency key.
 *
 *     `asked_by` names the program whose words these are, where no person typed them: what it says is never taken for the
 *     person's word. Without it, a client speaks as the person, which only their own clients can. `pasted` lists the parts
 *     of `text` that the person pasted: spans of Unicode code points, half-open, sorted and disjoint. The model sees the
 *     `images` beside the text.
 */
export interface Mission {
  text: string;
  stack_id?: string | null;
  asked_by?: string | null;
  pasted?: [number, number][];
  images?: Image[];
}
/**
 * A picture: base64 `data` of a `media_type`, or the `path` of a file that was uploaded.
 */
export interface Image {
  media_type?: string;
  data?: string | null;
  path?: string | null;
}
/**
 * Looks at what is due; answered when that has ended, and so have the missions before it.
 */
export interface Heartbeat {}
/**
 * Stops the named turn, or takes back the named mission that waits.
 *
 *     Without a name it stops the running mission; where none runs, the turn that the agent began by itself and its
 *     background work.
 */
export interface Interrupt {
  mission_id?: string | null;
}
/**
 * A new, empty stack.
 */
export interface CreateStack {
  action: "create_stack";
  name: string;
}
/**
 * Another name for a stack.
 */
export interface RenameStack {
  action: "rename_stack";
  name: string;
  stack_id: string;
}
/**
 * Takes a stack off the canvas.
 */
export interface ArchiveStack {
  action: "archive_stack";
  stack_id: string;
}
/**
 * Brings a stack back.
 */
export interface RestoreStack {
  action: "restore_stack";
  stack_id: string;
}
/**
 * A notes card of a person's, on the stack named or the one shown first.
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
 * A block that a person writes.
 */
export interface NewBlock {
  type: string;
  data: {
    [k: string]: unknown;
  };
}
/**
 * A place on the canvas, in pixels from its top left.
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
 * A person's new data for a block. `seen` is the version that was edited: with another one by now it is refused.
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
 * Takes a card off the canvas.
 */
export interface ArchiveCard {
  action: "archive_card";
  card_id: string;
}
/**
 * Brings a card back.
 */
export interface RestoreCard {
  action: "restore_card";
  card_id: string;
}
/**
 * Another place or size for a card; what is left out stays.
 */
export interface MoveCard {
  action: "move_card";
  card_id: string;
  position?: Point | null;
  size?: Size | null;
}
/**
 * One chunk of a file, base64; chunks come in order of `index`, from 0.
 */
export interface FileUpload {
  upload_id: string;
  name: string;
  index: number;
  last: boolean;
  data: string;
}
/**
 * The memory files, in numbers.
 */
export interface FilesRequest {
  op: "files";
}
/**
 * One memory file, as it is, as it was in a version, or as it was at a moment (`as_of`, in Unix seconds).
 *
 *     With a `project`, what a session of that project is shown of it.
 */
export interface FileRequest {
  op: "file";
  name: string;
  version?: number | null;
  as_of?: number | null;
  project?: string | null;
}
/**
 * Every version of a file.
 */
export interface HistoryRequest {
  op: "history";
  name: string;
}
/**
 * Hits for a question, best first.
 */
export interface SearchRequest {
  op: "search";
  query: string;
  limit?: number | null;
  project?: string | null;
}
/**
 * A turn with so many of its conversation before and after it. `not_found` if there is no such turn.
 */
export interface AroundRequest {
  op: "around";
  turn: number;
  before?: number;
  after?: number;
}
/**
 * The first prompt for a session of a project elsewhere, or of the person's own, at most 8,000 tokens.
 */
export interface BootRequest {
  op: "boot";
  project?: string | null;
}
/**
 * Learnings above `after`, oldest first; newest first (below `before`) where that or `newest` is set.
 *
 *     With `line`, the learnings that this line of a memory file rests on, best first.
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
 * One turn of the log, whole: by its number, or by its mission.
 */
export interface TurnRequest {
  op: "turn";
  id?: number;
  mission_id?: string | null;
}
/**
 * Every action, most urgent first.
 */
export interface ActionsRequest {
  op: "actions";
}
/**
 * A curated file's new content. `version` is the one that was edited: another one by now is a `conflict`.
 */
export interface EditRequest {
  op: "edit";
  name: string;
  content: string;
  version?: number | null;
}
/**
 * A file's drift becomes the file, as the person's own edit.
 *
 *     `curation_id` is the drift that was looked at: another one by now is a `conflict`.
 */
export interface AcceptRequest {
  op: "accept";
  name: string;
  curation_id?: number | null;
}
/**
 * A file's drift is put away: the file on disk becomes what memory has. `curation_id` as for `accept`.
 */
export interface RejectRequest {
  op: "reject";
  name: string;
  curation_id?: number | null;
}
/**
 * A new action. `due` is in Unix seconds, or a day or a moment in `tz` ("2026-12-01", "2026-12-01T09:00").
 *
 *     A day alone means 09:00. `rrule` is a repeat (RFC 5545); `tz` an IANA zone, by default the person's.
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
 * Changes an action: what is left out stays as it is, and an empty `due` or `rrule` takes it away.
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
 * An action's new status: open, done, dismissed or failed.
 *
 *     `version` is the one that was seen: where the action has another one by now, the answer is an error `conflict` with
 *     the `action` as it is.
 */
export interface ResolveActionRequest {
  op: "resolve_action";
  id: number;
  status: string;
  version?: number | null;
}
/**
 * The files of the user's folders, or of one of them.
 */
export interface UserFilesRequest {
  op: "user_files";
  folder?: string | null;
}
/**
 * Deletes one of them for good; `path` as listed.
 */
export interface DeleteUserFileRequest {
  op: "delete_user_file";
  path: string;
}
/**
 * The files that a turn changed, with diffs.
 *
 *     `turn` is the id of its mission, its number in the log, or the id of an undo; without it, the newest turn that
 *     changed files. `not_found` if nothing is known of it.
 */
export interface ChangesRequest {
  op: "changes";
  turn?: string | null;
}
/**
 * Takes back the file changes of a turn, or of an undo, named as in `changes`.
 *
 *     Without `paths` all but those that may be the person's own. `paths` and `over` name files, or folders with all
 *     below; those of `over` are restored even if they have changed since. `busy` while a turn runs.
 */
export interface UndoRequest {
  op: "undo";
  turn?: string | null;
  paths?: string[] | null;
  over?: string[];
}
/**
 * A quarantined turn waits again to be curated. `not_found` if it is not quarantined.
 */
export interface RetryRequest {
  op: "retry";
  turn_id: number;
}
/**
 * A person's word on a learning: `confirm` makes it their own, `retire` ends it, `edit` replaces it by `content`.
 *
 *     `retire` and `edit` also change the lines of memory files that rest on it. `not_found` if there is no such learning,
 *     `conflict` if it no longer holds, or if `confirm` has nothing to confirm.
 */
export interface LearningRequest {
  op: "learning";
  id: number;
  action: "confirm" | "edit" | "retire";
  content?: string;
}
/**
 * Exactly one of text, turn, session and learning; `preview` only says what would go, `yes` that many turns may.
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
 * Changes of memory, newest first, below an id where one is given.
 */
export interface CurationsRequest {
  op: "curations";
  before?: number | null;
  limit?: number | null;
}
/**
 * Turns, newest first, below an id where one is given.
 */
export interface ObservationsRequest {
  op: "observations";
  before?: number | null;
  limit?: number | null;
}
/**
 * Lines of the conversation, the newest (below an id where one is given).
 */
export interface ChatRequest {
  op: "chat";
  before?: number | null;
  limit?: number | null;
}
/**
 * Sessions, the last used first, below a `position` where one is given.
 */
export interface SessionsRequest {
  op: "sessions";
  before?: number | null;
  limit?: number | null;
}
/**
 * Gives a session another title; an empty one restores its own.
 */
export interface RenameSessionRequest {
  op: "rename_session";
  session_id: string;
  title: string;
}
/**
 * Memory and what it costs, in numbers.
 */
export interface HealthRequest {
  op: "health";
}
/**
 * The person's word on a `permission_request`.
 */
export interface Permission {
  request_id: string;
  decision: "allow" | "always" | "deny" | "session";
}
/**
 * `status`, `new_session` (ends this one), `resume_session`, `flush` (curates what waits) and others.
 *
 *     Answered when done. `check_model` sends one request that is not billed. `revoke` takes back what was allowed for
 *     good: the rule with this id, or (without one) all of them. `zone` says in which time zone the person is: `tz`, an
 *     IANA name. `go_on` is the person's word to a session that is paused; with `raise_limit` the bridge first raises what
 *     may be spent today by one daily budget. `model` chooses the model and the effort of this session; null is the
 *     default, and what is left out stays.
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
 * Asks what the agent may reach. `revoke` names a host whose rule is taken back first, with its connections.
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
 * A turn that has ended; `external_id` names it for good, `at` is when it ended (`started_at`: when it began).
 *
 *     `user` is what the person said; where nobody did (a background task was done), it is empty and `notice` says why.
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
 * A tool call of such a turn. Its texts are cut and redacted as for any turn.
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
 * Keeps a path open; dropped silently.
 */
export interface Ping {}
/**
 * Welcome; `limits` in bytes and characters.
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
 * Taken; which of the other fields are set depends on what is acknowledged.
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
 * The fault, in words that a person understands; `block` or `action` is what stands where a change came too late.
 *
 *     `newest` is the newest lease's epoch, for a bridge that is refused since it has an older one.
 */
export interface Error {
  code: string;
  message: string;
  block?: Block | null;
  newest?: number;
  action?: ActionRow;
}
/**
 * One piece of a card. `version` counts its changes, from 1; `by` is who made the last one.
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
 * Something to be done. `status` is open, done, dismissed or failed.
 *
 *     `due` and `fired_at` are Unix seconds: when it fires next, and when it fired last. `rrule` is the repeat (RFC 5545),
 *     computed in `tz`, an IANA zone. `origin` says who made it: curator, person, agent, or schedule (an agent within a
 *     turn that a schedule began). `history` is oldest first. `version` grows with each change.
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
 * One entry of an action's history: when, who (curator, person, agent, schedule or sprite), and what, in words.
 */
export interface ActionChange {
  at: number;
  by: string;
  what: string;
}
/**
 * Everything a client needs to draw itself.
 *
 *     `permissions` are the questions that are open, `running` what the turn under way has shown so far, `queued` the
 *     ids of the missions that wait, in order, `model` the agent's (null until it is known). While a mission waits for the
 *     end of a turn that the agent began by itself, `running` is that turn; `session` names the mission.
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
 * One line of the conversation as people see it; `at` in Unix seconds.
 *
 *     `tools` are what the turn used, in order; a reply with tools may have no text. `status` is how its turn ended, or
 *     that it has not; null where no turn is known. `asked_by` names the program whose message it is, where it is
 *     not the person's. `pasted` lists the parts of a person's message that they pasted, as in `mission`. `changes` counts
 *     the files that its turn changed, and `undone` says that some were taken back; `duration_ms` and `cost_usd` are null
 *     where they are not known; `found` are the hits of its searches of memory.
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
 * A tool that a turn used, in short: `title` says what for.
 *
 *     `tool_use_id` finds the whole call in the log; `answer` is the person's word where they were asked.
 */
export interface UsedTool {
  name: string;
  title: string;
  is_error: boolean;
  tool_use_id?: string;
  answer?: ("allow" | "always" | "deny" | "session") | null;
}
/**
 * The number of files that a turn changed; folders do not count.
 */
export interface FileCounts {
  added: number;
  modified: number;
  deleted: number;
}
/**
 * One hit of a turn's searches of memory; `turn` is the turn that it is or comes from.
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
 * The conversation under way; `session_id` is null until its first mission.
 *
 *     `running_mission_id` is the turn under way: a person's, or (where none runs) one that the agent began by itself.
 *     `busy` says whether a turn runs or a mission waits; `background` is what goes on beside turns, oldest first, and
 *     `held_until` (Unix seconds) when that stops keeping a VM awake: null where nothing goes on. `slow` names work that
 *     takes longer than a minute. Where it is `paused` the agent waits for the person's word. `model` answers in it (null
 *     until that is known), with the `effort` that the person chose.
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
}
/**
 * Work that the agent has begun and does not wait for; `since` in Unix seconds.
 */
export interface BackgroundWork {
  id: string;
  kind: "agent" | "command" | "task";
  title: string;
  since: number;
}
/**
 * Work that is not done for more than a minute; `since` in Unix seconds.
 *
 *     `turn` is the turn under way, `queue` the message that waits longest, `model_call` a call of the model without an
 *     answer.
 */
export interface SlowWork {
  kind: "model_call" | "queue" | "turn";
  since: number;
}
/**
 * Why the agent does nothing more by itself: `why` in words, `since` in Unix seconds.
 *
 *     `by`: it went on for too many turns, or for too much money, or the budget of the day or the `month` is used up. The
 *     person can raise that of the day.
 */
export interface Paused {
  why: string;
  by: "budget" | "cost" | "month" | "turns";
  since: number;
}
/**
 * Memory in numbers: how many learnings and turns there are, how many turns wait to be curated.
 *
 *     `quarantined` are the turns that are set aside, oldest first: they wait for a person's `retry`.
 *     `drift` names the files that changed on disk while the agent worked: they wait for the person's word.
 *     `unshipped_forgets` counts what was forgotten here and is not yet gone from the copy at the bridge.
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
 * A memory file in lines; `managed` says who writes it.
 */
export interface FileState {
  name: string;
  lines: number;
  limit: number;
  managed: "curated" | "deploy";
  updated_at: number | null;
}
/**
 * A turn that curation set aside, since every call about it was in vain; `at` in Unix seconds.
 */
export interface QuarantinedTurn {
  turn_id: number;
  reason: string;
  at: number;
}
/**
 * A tool call that waits for a person's word.
 *
 *     `mission_id` is the turn that made it. One of a `background` agent's, which that turn began, stays open when the
 *     turn ends, as long as anything goes on in the background. `input` is what runs, whole; `folder` is where, if that is
 *     not the workspace itself, and `real_path` where its `file_path` leads, if that is elsewhere. `always` says what
 *     "always" would allow; where it is null, "always" is this once. A question of the tool `network` is about the host in
 *     `input`: "allow" holds for the turn, `session` says what "session" would allow, and "always" holds until it is taken
 *     back. `redacted`: a copy that was kept of a question by now closed; its input may lack parts, and cannot be allowed.
 *     `tool_use_id` is the call that waits.
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
}
/**
 * The progress of a turn: its durable events (the newest, if they are many), then text still growing.
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
 * A turn has begun; `origin` says who began it. A turn of the agent's own may run while a mission waits for it.
 *
 *     With an `attempt` above 1 it begins again: it was cut off before its first tool call, and what it had said is void.
 */
export interface Started {
  event: "started";
  mission_id: string | null;
  origin?: "agent" | "person" | "schedule";
  attempt?: number;
  session_id?: string | null;
}
/**
 * A piece of text that is growing; not durable, since the whole text follows.
 */
export interface TextDelta {
  event: "text_delta";
  mission_id: string | null;
  text: string;
}
/**
 * The model thinks; `text` is the next piece of its thoughts, as far as it shows them. Not durable.
 */
export interface Thinking {
  event: "thinking";
  mission_id: string | null;
  text: string;
}
/**
 * A text of the agent's, whole.
 */
export interface WholeText {
  event: "text";
  mission_id: string | null;
  text: string;
}
/**
 * A tool is called; of a large input, the beginning.
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
 * A tool has answered, in short.
 */
export interface ToolResult {
  event: "tool_result";
  mission_id: string | null;
  tool_use_id: string;
  is_error: boolean;
  summary: string;
}
/**
 * The last lines that a running command has printed so far; they replace earlier ones. Not durable.
 */
export interface ToolOutput {
  event: "tool_output";
  mission_id: string | null;
  tool_use_id: string;
  text: string;
}
/**
 * The conversation is too long and is being summed up.
 */
export interface Compacting {
  event: "compacting";
  mission_id: string | null;
}
/**
 * The conversation was summed up.
 */
export interface Compacted {
  event: "compacted";
  mission_id: string | null;
}
/**
 * Another model answers from now on, since the first one declined or is not available; `text` is for people.
 */
export interface ModelChanged {
  event: "model_changed";
  mission_id: string | null;
  model: string;
  text: string;
}
/**
 * The mission is done. `usage` and the cost are null where they are not known.
 *
 *     `memory_found` are the hits of its searches of memory, in short.
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
 * A person stopped the mission; a sprite that is shut down ends it with `error` (`crashed`).
 */
export interface Interrupted {
  event: "interrupted";
  mission_id: string | null;
  changes?: FileCounts | null;
}
/**
 * The mission could not be done, in words a person understands; `retryable`: sending it again may work.
 *
 *     `action` is what helps; `details` is the original text of an unknown failure, to be shown folded.
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
 * The action that fires next; `at` in Unix seconds.
 */
export interface NextDue {
  action_id: number;
  at: number;
}
/**
 * The events asked for are pruned: everything after `oldest_seq` is still there; a sync follows.
 */
export interface Gap {
  oldest_seq: number;
}
/**
 * The answer to a `system` message; `stopped` is what a `new_session` ended with the one before.
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
 * Rules that hold without a question until the session ends; `at` in Unix seconds.
 *
 *     `words` are those of the question ("always allow this command"), `command` is the command, if it is about one.
 */
export interface StandingRule {
  rule_id: string;
  words: string;
  command: string;
  at: number;
}
/**
 * What was spent today (UTC), in this session, and for the newest turn (null where nothing of it is known).
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
 * What the agent, schedules and memory cost.
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
 * A card as it now is; `close_card` says it left the canvas.
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
 * Memory changed: the names of the files rewritten, the learnings added, by which curation.
 *
 *     `drift` names every file that waits for the person's word, as in the state. `answered` are earlier learnings that
 *     the person confirmed or retired, as they now are.
 */
export interface MemoryUpdate {
  files: string[];
  learnings: LearningRow[];
  curation_id: number;
  drift?: string[];
  answered?: LearningRow[];
}
/**
 * Something learned, with its evidence; `superseded_by` is the id of the learning that replaced it.
 *
 *     It is 0 if the person retired the learning. `project` is null where it is the person's own. `proposed` is the type
 *     that the learning gets if the person confirms it, null if it need not be confirmed.
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
 * The memory files, in the order of the boot prompt.
 */
export interface FilesResult {
  op: "files";
  files: FileState[];
}
/**
 * A file's content as memory has it; `version` is 0 while it is as shipped.
 *
 *     `drift` is what stands on disk instead, where that changed while the agent worked: it waits for the person's word.
 *     `drifted` says when that was found, and by which curation.
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
 * A memory file's change that waits for the person's word, and since when; by which curation.
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
 * One version of a memory file; `source` is curator or person.
 */
export interface VersionRow {
  version: number;
  curation_id: number;
  at: number;
  lines: number;
  source: string;
}
/**
 * Hits in rank order; learnings exist up to turn `indexed_through`, `waiting` turns are not curated yet.
 *
 *     `notes` say which filter left nothing, and how far the search by meaning reaches.
 */
export interface SearchResult {
  op: "search";
  hits: SearchHit[];
  indexed_through: number;
  waiting: number;
  notes?: string[];
}
/**
 * One result of a search; `turn_id` is the turn it is or comes from, `type` a learning's, or TURN.
 *
 *     `project` is left out for the person's own. `unverified` marks a learning that neither evidence nor the person has
 *     confirmed. `undone`: the file changes of its turn were undone.
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
 * Turns of one conversation, oldest first.
 */
export interface AroundResult {
  op: "around";
  turns: LoggedTurn[];
}
/**
 * One turn of the log, whole. `tool_calls` may hold any JSON where another program has written it.
 *
 *     It waits to be curated where it is neither `processed` nor `quarantined` nor `off_record`: what its person asked not
 *     to be remembered never is. `project` is null for the person's own, `source` the program it was said to (null: this
 *     sprite). Where `trigger` is "program", `user_message` has the words of a program and not the person's; `asked_by`
 *     names it.
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
 * The text, as data for a model; empty where there is no memory yet.
 */
export interface BootResult {
  op: "boot";
  text: string;
}
/**
 * Learnings, in the order that was asked for.
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
 * The file as it now is.
 */
export interface EditResult {
  op: "edit";
  name: string;
  content: string;
  version: number;
}
/**
 * The file as it now is.
 */
export interface AcceptResult {
  op: "accept";
  name: string;
  content: string;
  version: number;
}
/**
 * The file as it now is, in memory and on disk.
 */
export interface RejectResult {
  op: "reject";
  name: string;
  content: string;
  version: number;
}
/**
 * The action that was made, and every action as it now is.
 */
export interface AddActionResult {
  op: "add_action";
  action: ActionRow;
  actions: ActionRow[];
}
/**
 * The action, and every action as it now is.
 */
export interface UpdateActionResult {
  op: "update_action";
  action: ActionRow;
  actions: ActionRow[];
}
/**
 * Every action as it now is.
 */
export interface ResolveActionResult {
  op: "resolve_action";
  actions: ActionRow[];
}
/**
 * The files, newest first; `more` is how many are not listed.
 */
export interface UserFilesResult {
  op: "user_files";
  files: UserFile[];
  more?: number;
}
/**
 * A file in one of the user's folders: `path` from the workspace, `size` in bytes, the time in Unix seconds.
 */
export interface UserFile {
  path: string;
  size: number;
  modified_at: number;
}
/**
 * The file that is gone.
 */
export interface DeleteUserFileResult {
  op: "delete_user_file";
  path: string;
}
/**
 * A change set: `turn` is its id, `turn_id` the number in the log, `at` in Unix seconds, `more` files not listed.
 *
 *     `undoes` is the set that it took back, if it is an undo; `undone_by` the undo that took it back.
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
 * A file that a turn changed; sizes in bytes, modes as `ls` shows them. Where it was or is not there, null.
 *
 *     A path with a slash at its end is a folder that is not searched (not `kept`), or a git repository, which is shown
 *     and undone as a whole. Not `kept`: its content cannot be restored. `yours`: the person may have changed it; it is
 *     undone only when named. `undone`: it was taken back. `diff` is unified, of text; previews are `data:` addresses of
 *     small images.
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
 * Which paths were restored, and which were not: changed since, maybe the person's, or with no content kept.
 *
 *     `undo` is the id of the undo, which can be undone; null if nothing was restored.
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
 * The turns that are quarantined now.
 */
export interface RetryResult {
  op: "retry";
  quarantined: QuarantinedTurn[];
}
/**
 * The learning as it now is, or the one that replaced it by an `edit`.
 */
export interface LearningResult {
  op: "learning";
  learning: LearningRow;
}
/**
 * The text that would go, or that went.
 *
 *     `done`: it is gone, and the bridge's copy, if there is one, has confirmed that. False is also the answer to a forget
 *     that the copy did not confirm in time: `forgotten.still` says so, and the copy is told until it does.
 */
export interface ForgetResult {
  op: "forget";
  forgotten: Forgotten;
  done: boolean;
}
/**
 * What a forget touches, in numbers and in words (`gone`; `more` counts what is not listed).
 *
 *     `still` is what was found afterwards, in every store: empty, all of it is gone. In a preview it is what a forget
 *     leaves: deployed files, the person's own, and learnings that say more.
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
 * A text, and where it stands, in words: "user.md", "learning 4", "turn 7, the reply".
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
 * What changed memory: a batch of turns, an edit, a forget, a turn's quarantine or its end (`kind`), or a drift.
 *
 *     `detail` is what it was about, where it is no batch; `active` is false where a later extraction has replaced it.
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
 * A part of a curation that a guard refused, in words.
 */
export interface Rejected {
  kind: string;
  detail: string;
}
/**
 * Turns, newest first.
 */
export interface ObservationsResult {
  op: "observations";
  observations: TurnRow[];
}
/**
 * One turn in a list: its words are cut, `tools` are the names of what was called.
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
 * Lines of the conversation, oldest first; as many of the newest as fit one frame.
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
 * A session in a list. `title` is the person's, or else its first message; times are Unix seconds.
 *
 *     `mission_id` is its first mission, `position` orders the list.
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
 * The session that was renamed.
 */
export interface RenameSessionResult {
  op: "rename_session";
  session_id: string;
}
/**
 * Memory in numbers.
 */
export interface HealthResult {
  op: "health";
  health: Health;
}
/**
 * Memory and what it costs, in numbers; spend in US dollars, as far as prices are known.
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
 * A guard's refusal in words, with its curation.
 */
export interface Refusal {
  curation_id: number;
  kind: string;
  detail: string;
}
/**
 * A question is not open any more; `decision` is null if no answer came in time.
 */
export interface PermissionResolved {
  request_id: string;
  decision: ("allow" | "always" | "deny" | "session") | null;
}
/**
 * A mission was taken; `at` in Unix seconds. Its reply comes as agent events.
 *
 *     A person's message, from whichever client, or (by `origin`) what a schedule asked for, or what a program did, which
 *     `asked_by` then names. `pasted` lists the parts of the text that the person pasted, as in `mission`.
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
 * A stack as it now is: made, renamed, archived or restored.
 */
export interface StackUpdate {
  stack_id: string;
  name: string;
  archived: boolean;
}
/**
 * The session as it now is, after background work began or ended, or it was paused or goes on.
 */
export interface SessionUpdate {
  session: SessionState;
}
/**
 * An action as it now is: made, changed, fired or closed, by whomever.
 */
export interface ActionUpdate {
  action: ActionRow;
}
/**
 * When the sprite wants to be awake next; null where nothing is due.
 */
export interface ScheduleUpdate {
  next_due: NextDue | null;
}
/**
 * The answer to `reach`. `sandbox` says what holds; `holds` is null until the agent's first start has tried it.
 *
 *     `writable` are the folders that the agent may write. `mode` is that of SPRITE_EGRESS. `registries` are open in the
 *     modes `ask` and `packages`.
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
 * A host that the person allowed: for the turn or session, or always. `message` began the turn that asked.
 */
export interface AllowedHost {
  host: string;
  until: "always" | "session" | "turn";
  at?: number | null;
  message?: string | null;
}
/**
 * Connections to a host with the same decision; bytes as seen by the agent, `last_at` in Unix seconds.
 *
 *     `decision` says why: the model's endpoint, a package registry, all hosts are open, the person's answer, or it was
 *     refused. `open` of them are open now. `message` began the turn of the last one.
 */
export interface ReachedHost {
  host: string;
  port: number;
  decision: string;
  connections: number;
  open: number;
  sent: number;
  received: number;
  last_at: number;
  message: string | null;
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
 * A turn that was not taken, and why, in words.
 */
export interface RefusedTurn {
  external_id: string;
  why: string;
}
/**
 * From the bridge to its pages and terminals: how its link to the sprite is, with words where they help.
 *
 *     `offer`: what the person may ask the bridge for; `as_of` is when what it keeps was so. `restore`: the machine of the
 *     agent is gone. `choose`: the agent has less than what is kept, or another log; which of the two goes on is to be
 *     decided.
 */
export interface LinkState {
  state: "connecting" | "ready" | "unavailable" | "updating" | "waking";
  detail: string;
  offer?: ("choose" | "restore") | null;
  as_of?: number | null;
}
