// What the server's parser, written in Python, takes for white space and for letters: JavaScript's own differ a little.

const SPACE = "[\\t-\\r\\x1c- \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
const LEADING = new RegExp(`^${SPACE}+`);
const BLANK = new RegExp(`^${SPACE}`);
const LETTER = /^[\p{L}\p{N}]/u;
const LAST_LETTER = /[\p{L}\p{N}]$/u;
const DIGIT = /^[\p{Nd}²³¹⁰⁴-⁹₀-₉]/u;
const blank = (character) => BLANK.test(character);

// Without a pattern: one that ends in `$` takes time with the square of a long run of blanks.
export function stripEnd(text) {
  let end = text.length;
  while (end && blank(text[end - 1])) end -= 1;
  return text.slice(0, end);
}

export const strip = (text) => stripEnd(text.replace(LEADING, ""));
export const startsBlank = blank;
export const startsWithLetter = (text) => LETTER.test(text);
export const endsWithLetter = (text) => LAST_LETTER.test(text);
export const startsWithDigit = (text) => DIGIT.test(text);
