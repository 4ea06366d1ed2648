// Formulas in Markdown, as in conversations/markdown_math.py: `$$..$$`, `\[..\]`, `\(..\)`, and `$..$` where it cannot be a price.
// Besides: in a text that goes on (`env.open`) a formula without an end is one already, marked `meta.open`. So nobody sees its
// source as prose. `env.tail` is the inline text that may go on.

import { endsWithLetter, startsBlank, startsWithDigit, startsWithLetter, strip, stripEnd } from "./markdown_space.js";

const MAX_INLINE = 2_000; // characters; also bounds what is searched for an end that is not there
const MAX_LINES = 40; // of a block
const MAX_DOLLARS = 200; // characters of a formula between single dollars that has no end yet
const CLOSINGS = new Map([["$$", "$$"], ["\\[", "\\]"], ["\\(", "\\)"]]);
const FORMULA = /[\\^_={}+*<>|]/; // what a price, or an escaped bracket, does not have
const SURE = /\\[a-zA-Z]|[\^_={}]/; // what hardly any prose has
const HALF_CLOSED = /[$\\]$/;

// The formula that begins at `start`, and where the text goes on.
function delimited(text, start, limit, opening) {
  const rest = text.slice(start + 2, Math.min(limit, start + MAX_INLINE));
  const length = rest.indexOf(CLOSINGS.get(opening));
  const content = length < 0 ? "" : strip(rest.slice(0, length));
  if (!content || (opening === "\\[" && !FORMULA.test(content))) return null;
  return { content, end: start + length + 4 };
}

// As `delimited`, for single dollars: no blank inside of them, nothing that may be a word or a price behind.
function dollars(text, start, limit) {
  if (!opensDollar(text, start)) return null;
  const length = text.slice(start + 1, Math.min(limit, start + MAX_INLINE)).indexOf("$");
  const end = start + 1 + length;
  const content = length < 0 ? "" : text.slice(start + 1, end);
  if (!content || startsBlank(content.at(-1)) || content.endsWith("\\") || startsWithLetter(text.slice(end + 1, end + 3))) return null;
  if (startsWithDigit(content) && !FORMULA.test(content)) return null;
  return { content, end: end + 1 };
}

function opensDollar(text, start) {
  const first = text.slice(start + 1, start + 3);
  return first && !startsBlank(first) && !endsWithLetter(text.slice(Math.max(0, start - 2), start));
}

function pushFormula(state, content, opening, open) {
  const token = state.push("math_inline", "span", 0);
  token.content = content;
  token.meta = { display: opening === "$$" || opening === "\\[", open };
}

function mathInline(state, silent) {
  const opening = state.src.slice(state.pos, state.pos + 2);
  const double = CLOSINGS.has(opening);
  if (!double && !opening.startsWith("$")) return false;
  const found = double ? delimited(state.src, state.pos, state.posMax, opening) : dollars(state.src, state.pos, state.posMax);
  if (!found) return state.src === state.env.tail && (double ? goesOn(state, opening, silent) : mayGoOn(state, silent));
  if (!silent) pushFormula(state, found.content, opening, false);
  state.pos = found.end;
  return true;
}

function goesOn(state, opening, silent) {
  const rest = state.src.slice(state.pos + 2, state.posMax);
  if (rest.length > MAX_INLINE || rest.includes(CLOSINGS.get(opening))) return false;
  if (opening === "\\[" && rest && !startsBlank(rest) && !SURE.test(rest)) return false;
  if (!silent) pushFormula(state, strip(rest), opening, true);
  state.pos = state.posMax;
  return true;
}

// A dollar may be a price. What looks like a formula is shown as it is written until its end has come.
function mayGoOn(state, silent) {
  const rest = state.src.slice(state.pos + 1, state.posMax);
  if (rest.length > MAX_DOLLARS || rest.includes("$") || !SURE.test(rest) || !opensDollar(state.src, state.pos)) return false;
  if (!silent) state.pending += `$${rest}`;
  state.pos = state.posMax;
  return true;
}

const lineAt = (state, row) => stripEnd(state.src.slice(state.bMarks[row] + state.tShift[row], state.eMarks[row]));

function mathBlock(state, first, last, silent) {
  if (state.sCount[first] - state.blkIndent >= 4) return false;
  const line = lineAt(state, first);
  const opening = line.slice(0, 2);
  if (opening !== "$$" && opening !== "\\[") return false;
  const closing = CLOSINGS.get(opening);
  const end = state.bMarks.length - 1; // of the whole text
  const lines = [line.slice(2)];
  let row = first;
  while (!lines.at(-1).endsWith(closing)) {
    row += 1;
    if (row >= end && state.env.open && row < first + MAX_LINES) return openBlock(state, first, lines, opening, silent);
    if (row >= Math.min(last, first + MAX_LINES) || state.sCount[row] < state.blkIndent) return false;
    lines.push(lineAt(state, row));
    const another = lines.at(-1).startsWith(opening) && !lines.at(-1).endsWith(closing); // then this one has no end
    if (another && !(state.env.open && row + 1 === end && !state.src.endsWith("\n"))) return false;
  }
  const content = strip(lines.join("\n").slice(0, -2));
  if (!content || content.includes(closing) || (opening === "\\[" && !FORMULA.test(content))) return false;
  if (!silent) pushBlock(state, first, row + 1, content, false);
  return true;
}

function openBlock(state, first, lines, opening, silent) {
  const content = lines.join("\n").replace(HALF_CLOSED, "");
  if (content.includes(CLOSINGS.get(opening))) return false;
  if (opening === "\\[" && content && !startsBlank(content) && !SURE.test(content)) return false;
  if (!silent) pushBlock(state, first, first + lines.length, strip(content), true);
  return true;
}

function pushBlock(state, first, end, content, open) {
  const token = state.push("math_block", "div", 0);
  token.content = content;
  token.block = true;
  token.map = [first, end];
  token.meta = { open };
  state.line = end;
}

// Adds tokens `math_inline` (`meta.display`: on a line of its own) and `math_block`; `content` is TeX.
export function mathPlugin(md) {
  md.inline.ruler.before("escape", "math_inline", mathInline);
  md.block.ruler.before("fence", "math_block", mathBlock, { alt: ["paragraph", "reference", "blockquote", "list"] });
}
