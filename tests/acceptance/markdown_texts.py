"""Markdown that renderers disagree about, or that is awkward while it arrives."""

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"  # one picture, seven code points

# name -> text
TEXTS = {
    "prose": "The **river** flows from *the hills*, _past_ `fields`, to ***the sea***.\nAnd ~~not~~ a third.",
    "headings": "# One\n\n## Two ##\n\nThree\n=====\n\nFour\n---\n\n###### Six `code` *it*\n\n#none\n\n####### none",
    "fence": "Before\n```python\ndef f(x):\n    return '<b>' * x\n```\nAfter",
    "fence-without-end": "Before\n\n```js\nconst a = `x`;\n\n# no heading\n- no list",
    "fence-of-waves": "~~~\n```\nstill code\n~~~\n\nout\n\n~~~~ruby title=x\n~~~\na\n~~~~",
    "fence-in-fence": "````md\n```py\nx\n```\n````\n",
    "fence-in-list": "1. First:\n\n   ```sh\n   ls -l\n   ```\n\n2. Then:\n   ```\n   a\n     b\n   ```\n   end\n- c",
    "fence-in-quote": "> ```\n> a\n>\n> b\n> ```\n> end\n\nout",
    "code-by-indent": "Look:\n\n    indented\n      more\n\n    last\n\nend",
    "code-in-line": "`a` ``b ` c`` ` d ` `` `e` `` and `f\ng`, \\`h\\`",
    "tight-list": "- a\n- b\n  - c\n    - d\n- e\n\nend",
    "loose-list": "- a\n\n- b\n\n  more of b\n\n  - c\n\n- d",
    "list-that-becomes-loose": "1. a\n2. b\n\n3. c",
    "lists-of-all-kinds": "* a\n+ b\n- c\n1) d\n2) e\n7. f\n8. g\n- [ ] to do\n- [x] done",
    "list-in-quote": "> - a\n>   - b\n> - c\n> > deep\n\n- > quote in list\n  > more",
    "table": "| a | b |\n|---|:-:|\n| 1 | **two** |\n| `x` | |\n| only |\n\nafter",
    "table-behind-a-paragraph": "Here it is:\n| a | b |\n|---|---|\n| 1 | 2 |\nno pipe\n\nend",
    "table-with-breaks": "| a | b |\n|---|---|\n| one<br>two<br/>three | x<BR />y |\n",
    "table-that-is-none": "| a | b |\n| c | d |\n\n|x| is the size of x, and |y| that of y.",
    "table-with-pipes": "| a | b |\n|--|--|\n| `a \\| b` | c \\| d |\n",
    "breaks": "a<br>b<br/>c<br />\nd  \ne\\\nf\n`<br>` and \\<br> and <brr> and <br\n> quoted",
    "rules": "a\n\n---\n\nb\n\n***\n\n- - -\n\n___\n*** no",
    "links": 'See [one](https://example.org/a_b "A title"), [**two**](<https://example.org/c d>), [a](/b(c)d) [e].',
    "reference-links": "Read [the *book*][b], [b] and [B][], not [c].\n\n[b]: https://example.org/b 'Book'\n\n[b].",
    "reference-first": "[x]: <https://example.org/x>\n\n[x], ![pic][x]\n\n- [x]\n",
    "autolinks": "<https://example.org/?a=1&b=2>, <me@example.org>, https://example.org, <not a link>, <x:y>",
    "images": "![A *cat*](https://example.org/cat.png) ![](https://example.org/x.png) [![i](j)](k)",
    "entities": "&amp; &lt;b&gt; &copy; &#65; &#x42; AT&T &nothing; &amp",
    "escapes": "\\*a\\* \\_b\\_ \\# \\[c\\] \\\\ \\d 1\\. \\|",
    "html": "<div class=x>\n\n<b>bold</b> <!-- no --> </div>\n<details><summary>s</summary>\n\n**in**\n\n</details>",
    "footnote": "A claim.[^1]\n\n[^1]: Its source, in a sentence.",
    "math": (
        "Inline $x_1 + y^2$, \\(a*b*c\\) and $$z$$.\n\n$$\n\\int_0^1 x\\,dx\n$$\n\n"
        "\\[\nE = mc^2\n\\]\n\n- \\[ \\frac{a}{b} \\]\n"
    ),
    "matrix": "$$\n\\begin{pmatrix}\n1 & 2 \\\\\n3 & 4\n\\end{pmatrix}\n$$\nthen",
    "prices": "It costs $5, or $6 with *tax*; US$7. In the shell `$HOME`, or $PATH. \\$8. 2 * 3 * 4 = 24, 2*3*4 too.",
    "snake": "call some_long_name and __init__ or _x; a ** b, 5 * 6, * alone, _ alone, ~ alone, ~~ alone.",
    "stars": "**bold *and it* bold** *it **and bold** it* **a**b**c** *(a)*. **\u4e2d\u6587\uff08\u4e2d\uff09**\u6587",
    "never-closed": "**bold that never ends\n\n*italics that never end\n\n~~gone\n\n[link](https://example.org\n\n![image\n\n`code",
    "never-closed-math": "Let $x be\n\n\\(a_1 + b\n\nand $$c_2\n\nend",
    "never-closed-math-block": "$$\na_1 = 2\n\nnot *closed*",
    "emoji": f"{FAMILY} **{FAMILY}** `{FAMILY}` \U0001f1e9\U0001f1ea *e\u0301* |{FAMILY}|\n\n- {FAMILY}",
    "right-to-left": (
        "\u05e9\u05dc\u05d5\u05dd **\u05e2\u05d5\u05dc\u05dd** (abc) \u202e*x*\u202c\n\n"
        "- \u0645\u0631\u062d\u0628\u0627 `\u0627`\n\n> \u0627\u0642\u062a\u0628\u0627\u0633"
    ),
    "white-space": "a\u00a0b\u3000c\t d\u2028e\n\n\u3000f\u3000\n\n#\u00a0no heading\r\nh\r\ri\x00j",
    "scripts": "<script>alert(1)</script><img src=x onerror=alert(1)><svg/onload=alert(1)>\n<iframe src=//x></iframe>",
    "links-that-run": (
        "[a](javascript:alert(1)) [b](JaVaScRiPt:alert(1)) [c](&#106;avascript:alert(1)) [d](vbscript:x) "
        "[e](data:text/html;base64,PHNjcmlwdD4=) ![f](javascript:alert(1)) [g](ftp://h) [i](tel:1) <javascript:x>"
    ),
    "attributes": (
        '[x](http://x "onmouseover=alert(1)") [y](http://x" onmouseover="alert(1)) [z](http://x "</a> <b>")\n\n'
        '```"><script>alert(1)</script>\nx\n```\n\n<a href="javascript:alert(1)" hx-get="/x" style="x">y</a>'
    ),
    "deep": "> " * 30 + "x\n\n" + "".join(f"{'  ' * depth}- {depth}\n" for depth in range(30)),
    "long-line": "word *word* `word` " * 60,
}

# Where letters that were shown are taken back: `b` of `[book][b]` is text until it is known where it leads.
TAKEN_BACK = {"reference-links", "reference-first"}
