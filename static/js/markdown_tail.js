// The end of a Markdown text that goes on. What has begun there is shown as what it is about to be (`**bol` is bold), and what may
// still become something else (a lone `*`, the first row of a table) is not shown yet. So nothing that was shown is taken back
// while a text grows, unless its author never finishes what was begun. A parse does so if its environment says `open`.

const MARKERS = new Set([0x2a, 0x5f, 0x7e]); // * _ ~
const MAX_OPEN = 12;
const WORD_END = /[\p{L}\p{N}]$/u;

// Inline: rules that read what has no end yet, at the end of the text (`env.tail`)

const inTail = (state) => state.src === state.env.tail;

function openCode(state, silent) {
  if (state.src.charCodeAt(state.pos) !== 0x60 || !inTail(state)) return false;
  const run = /`+/g;
  run.lastIndex = state.pos;
  const [marks] = run.exec(state.src);
  const start = run.lastIndex;
  for (let next = run.exec(state.src); next; next = run.exec(state.src)) if (next[0].length === marks.length) return false;
  const code = state.src.slice(start, state.posMax).replaceAll("\n", " ").trimStart();
  if (!code) return false;
  if (!silent) {
    const token = state.push("code_inline", "code", 0);
    token.markup = marks;
    token.content = code;
  }
  state.pos = state.posMax;
  return true;
}

// `(address "title` behind the text of a link
const TARGET = new RegExp(
  /^\(\s*(?:<(?:[^<>\n\\]|\\.)*>?|(?:[^\s()<\\]|\\.|\([^\s()]*(?:\)|$))*)/.source +
    /(?:\s+(?:"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|\((?:[^()\\]|\\.)*\)?)?\s*)?$/.source,
  "s",
);
const MAX_TARGET = 2_000;

function openLink(state, silent) {
  const image = state.src[state.pos] === "!";
  const bracket = image ? state.pos + 1 : state.pos;
  if (state.src[bracket] !== "[" || !inTail(state) || (!image && state.linkLevel)) return false;
  const end = state.md.helpers.parseLinkLabel(state, bracket, !image);
  if (end < 0 || state.posMax - end > MAX_TARGET || !TARGET.test(state.src.slice(end + 1, state.posMax))) return false;
  if (!silent) (image ? pushImage : pushLink)(state, bracket + 1, end);
  state.pos = state.posMax;
  return true;
}

function pushImage(state, start, end) {
  const token = state.push("image", "img", 0);
  token.children = [];
  token.content = state.src.slice(start, end);
  state.md.inline.parse(token.content, state.md, state.env, token.children);
}

function pushLink(state, start, end) {
  const { posMax } = state;
  state.push("link_open", "a", 1);
  state.pos = start;
  state.posMax = end;
  state.linkLevel += 1;
  state.md.inline.tokenize(state);
  state.linkLevel -= 1;
  state.posMax = posMax;
  state.push("link_close", "a", -1);
}

// Those of `*`, `_` and `~~` that are open at the end, outermost first. One star within a word is a sign for "times", too.
function openMarks({ delimiters, tokens }) {
  const found = [];
  for (let index = 0; index < delimiters.length; index += 1) {
    const mark = delimiters[index];
    if (mark.end >= 0) index = mark.end; // what is open within a pair stays text
    else if (mark.open && MARKERS.has(mark.marker)) {
      const before = tokens[mark.token - 1];
      if (mark.length > 1 || before?.type !== "text" || !WORD_END.test(before.content)) found.push(mark);
    }
  }
  return found;
}

function closeMarks(state) {
  if (!inTail(state)) return;
  const open = openMarks(state);
  if (open.length > MAX_OPEN) return; // no prose, and very deep
  for (const mark of open.reverse()) {
    state.push("text", "", 0);
    mark.end = state.delimiters.length;
    const { marker, length } = mark;
    state.delimiters.push({ marker, length, token: state.tokens.length - 1, end: -1, open: false, close: true });
  }
}

// What may be the first half of something: marks, a backslash, `<br`, `&amp`
const HALF = /(?:[*_~`$]+|\\|<(?:b(?:r ?\/?)?)?|&#?\w{0,31})$/i;
const HALF_CHARS = 64;

function withoutHalf(text) {
  let kept = text;
  for (;;) {
    const found = HALF.exec(kept.slice(-HALF_CHARS));
    if (!found) return kept;
    kept = kept.slice(0, kept.length - found[0].length);
  }
}

const LINE_END = /\n[ \t>]*$/;
// The inline text that goes on when more comes, if there is one.
function tailOf({ src, tokens }) {
  const lines = src.replace(/\n$/, "").split("\n").length;
  for (let index = tokens.length - 1; index > 0; index -= 1) {
    const { type, nesting, content, map } = tokens[index];
    if (nesting === 0 && type !== "inline") return null;
    if (type !== "inline") continue;
    const opening = tokens[index - 1].type;
    if (!content && opening === "td_open") continue; // a row is filled up with empty cells
    const over = opening === "paragraph_open" ? map[1] < lines : LINE_END.test(src);
    return over ? null : tokens[index];
  }
  return null;
}

function parseInline(state) {
  const { md, env, tokens } = state;
  const tail = env.open ? tailOf(state) : null;
  if (tail) tail.content = withoutHalf(tail.content);
  for (const token of tokens) {
    if (token.type !== "inline") continue;
    env.tail = token === tail ? token.content : null;
    md.inline.parse(token.content, md, env, token.children);
  }
}

export function tailPlugin(md) {
  md.inline.ruler.before("backticks", "open_code", openCode);
  md.inline.ruler.after("image", "open_link", openLink);
  md.inline.ruler2.after("balance_pairs", "close_marks", closeMarks);
  md.core.ruler.at("inline", parseInline);
}

// Blocks: the last line

const PREFIX = /^(?:[ \t>]|[-+*][ \t]|\d{1,9}[.)][ \t])*/;
const SIGNS = /^[-+*=_~`#$\\<>&|:.,()[\]!\d\s]*$/; // may be a list's mark, a rule, the line below a heading, a table, a fence
const FENCE = /^(?:`{3,}[^`]*|~{3,}.*)$/;
const ROW = /^\|.{0,160}$/;
const RULE = /^[-|:\s]*$/; // below the first row of a table
const LABEL = /^ {0,3}\[(?:[^\]]{0,60}\]?|[^\]]{1,200}\]:[ \t]*(?:\S*|\S+[ \t]+(?:["'(].*)?))$/; // where a link leads

const BLANK_END = /\n[ \t>]*\n[ \t>]*$/;

const lineStart = (text, end) => text.lastIndexOf("\n", end - 1) + 1;
const withoutPrefix = (line) => line.slice(PREFIX.exec(line)[0].length);
const undecided = (line, rest) => SIGNS.test(rest) || FENCE.test(rest) || ROW.test(rest) || LABEL.test(line);

// The last block that holds text itself: a token of a paragraph or a heading, of code, or the end of a table.
function lastLeaf(tokens) {
  return tokens.findLast(({ type, nesting }) => nesting === 0 || type === "table_close") ?? null;
}

const FENCE_END = /^[\s>]*(`+|~+)[ \t]*$/;

function isOpen({ map, markup }, text) {
  const lines = text.split("\n");
  if (map[1] < lines.length - 1) return false;
  const found = map[1] - map[0] > 1 ? FENCE_END.exec(lines[map[1] - 1]) : null;
  return !found?.[1].startsWith(markup);
}

// Whether the last line belongs to what it cannot end: a row to a table, a line of code to its block.
function continues(leaf, text, line, rest) {
  if (leaf?.type === "table_close") return !BLANK_END.test(text) && /^\|.*[^|\s]/.test(rest);
  if (leaf?.type !== "fence" || !isOpen(leaf, text)) return false;
  return !FENCE_END.exec(line)?.[1].startsWith(leaf.markup[0]);
}

// Tokens of a text that goes on, and how much of it they show.
export function parseOpen(md, text, references) {
  const parse = (length) => {
    const env = { open: true, references: { ...references } };
    const shown = text.slice(0, length);
    return { tokens: md.parse(shown, env), env, shown };
  };
  const start = lineStart(text, text.length);
  const line = text.slice(start);
  const rest = withoutPrefix(line);
  if (!undecided(line, rest)) return parse(text.length);
  const parsed = parse(start);
  const leaf = lastLeaf(parsed.tokens);
  if (line && continues(leaf, parsed.shown, line, rest)) return parse(text.length);
  if (!RULE.test(rest) || leaf?.type !== "inline") return parsed;
  const before = lineStart(text, start - 1);
  return start && ROW.test(withoutPrefix(text.slice(before, start - 1))) ? parse(before) : parsed;
}
