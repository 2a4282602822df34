"""Texts that tokenisers are tested on: languages, emoji, code, numbers, white space, control characters, broken UTF-8,
special tokens as text. Deterministic. texts() gives bytes, special_texts(names) texts that hold special tokens."""
import random

SENTENCES = """The quick brown fox jumps over the lazy dog.
It's what she'd said: they'll've gone, we're done, I'm not, don't!
IT'S WHAT SHE'D SAID: THEY'LL GO, WE'RE DONE, I'M NOT
Voix ambiguë d'un cœur qui, au zéphyr, préfère les jattes de kiwis.
Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. STRAẞE
El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia y frío, ¿añoraba? ¡sí!
À noite, vovô Kowalsky vê o ímã cair no pé do pinguim queixoso.
Pchnąć w tę łódź jeża lub ośm skrzyń fig.
Příliš žluťoučký kůň úpěl ďábelské ódy.
Kraljević, Škoda, Đorđe i Čačak; Kraljevic, Skoda
Árvíztűrő tükörfúrógép
Fīlips Jūrmalā, Hokkaidō, Tōkyō, Hokkaido
Pijamalı hasta yağız şoföre çabucak güvendi. İstanbul IĞDIR ıi
Kæmi ný öxi hér ykist þjófum nú bæði víl og ádrepa.
Flygande bäckasiner söka hwila på mjuka tuvor. Høj bly gom vandt fræk sexquiz på wc
Tiếng Việt: Ngữ pháp tiếng Việt rất khó, đúng không?
Съешь же ещё этих мягких французских булок, да выпей чаю.
Чуєш їх, доцю, га? Кумедна ж ти, прощайся без ґольфів!
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ΟΔΟΣ οδός ΰ
דג סקרן שט בים מאוכזב ולפתע מצא חברה. שָׁלוֹם עֲלֵיכֶם
نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر ومغلف بجلد أزرق. السَّلامُ عَلَيْكُمْ ١٢٣٤٥
این یک متن فارسی است؛ می‌خواهم بخوانم ۱۲۳
یہ اردو ہے
ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश। क्षत्रिय १२३
আমি বাংলায় গান গাই। ০১২
யாமறிந்த மொழிகளிலே தமிழ்மொழி போல்
తెలుగు భాష ಕನ್ನಡ മലയാളം ગુજરાતી ਪੰਜਾਬੀ සිංහල
เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน ๑๒๓ น้ำ
ພາສາລາວ မြန်မာဘာသာ ភាសាខ្មែរ བོད་ཡིག་
ქართული ენა ՀԱՅԵՐԵՆ հայերեն և
いろはにほへと ちりぬるを、わかよたれそ。カタカナ ﾊﾝｶｸ ｶﾞ 東京タワーは333メートルです。
天地玄黃,宇宙洪荒。日月盈昃，辰宿列張！简体中文和繁體中文「引號」『』……——
키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다. 한글 한글
ᏣᎳᎩ ᐃᓄᒃᑎᑐᑦ ⵜⴰⵎⴰⵣⵉⵖⵜ አማርኛ ۞ ߒߞߏ
𝕳𝖊𝖑𝖑𝖔 𝒲ℴ𝓇𝓁𝒹 ﬁ ﬂ ﷺ ½ ⅓ Ⅷ ⅷ ① ⑳ ² ³ ₂ ㍻ ℡ ™ ® Å
𠜎𠜱𠝹𠱓 𐍈𐌰 𓀀𓂀 𒀀 🜁 𝟘𝟙𝟚 𞤀𞤣𞤤𞤢𞤥
∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β = ¬(¬α ∨ β), ∑ᵢ xᵢ² ≤ ∞ ± × ÷ √2
“Curly” ‘quotes’ — dashes – and… ellipsis • bullet · dot ‹a› «b» ¡ ¿ § ¶ † ‡ € £ ¥ ₹ ₿ ¢
─│┌┐└┘├┤┬┴┼ ▀▄█▌ ▁▂▃ ◢◣ ←↑→↓ ⇒ ⟨⟩ ♠♥♦♣ ✓✗ ☐☑ ░▒▓
é é ẹ́ n̈ Z̴̡͔a̵l̶̨g̷o̸ a̐éö̲ ǡ ǡ ṩ ṩ q̣̇""".split("\n")

EMOJI = ["🙂", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "🇩🇪🇫🇷", "❤️", "❤", "1️⃣", "#️⃣", "🧑🏿‍🚀", "👨‍❤️‍💋‍👨", "🤷🏻‍♀️", "☺️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🀄", "♟️", "🥹", "✍🏾",
         "🧿🪬", "👁️‍🗨️", "🦾", "😀😃😄", "🙂🙃 🙂", "ok👌ok", "🔟", "©️"]

CODE = """#include <stdio.h>
int main(void) { for (int i = 0; i < 10; ++i) printf("%d\\n", i); return 0; }
\tif (x != NULL && *x->next == '\\0') goto done; /* why */
def f(x, *args, **kw):\n    return {k: v**2 for k, v in kw.items() if v is not None}  # ok
    @property\n        def name(self) -> str: ...
std::vector<std::pair<int, std::string>> v{{1, "a"}, {2, "b"}};
const f = async ({a, b = 3}) => `${a}${b}` ?? null; // =>
fn main() { let x: Vec<u8> = vec![0u8; 1_000]; println!("{:?}", x.iter().map(|b| b << 2).sum::<u8>()); }
SELECT a.*, COUNT(*) FROM "t" AS a WHERE a.id >= 100 AND b <> 'x''y' GROUP BY 1;
<div class="a b" id='c'>&nbsp;&lt;x&gt;</div><br/><!-- c --> </html>
{"a": [1, 2.5e-3, null, true], "b\\u00e9": "\\n", "c": {}}
git commit -m "fix: don't" && make -j$(nproc) 2>&1 | tee /tmp/log.txt; echo $?
https://example.org/a/b.html?x=1&y=%20z#frag user.name+tag@mail.example.com
C:\\Program Files\\x86\\..\\file.tar.gz ~/.config //net/share
\\begin{equation} \\frac{1}{2}\\sum_{i=0}^{n} x_i^2 \\end{equation}
0x1F 0b1010 1e10 1.0f 1_000_000 3.14159 .5 5. v1.2.3-rc.1+build.5
camelCaseName snake_case_name SCREAMING_SNAKE kebab-case HTMLParserV2 iPhone15ProMax
!!! ??? ... ;;; ,,, --- === *** ### $$$ %%% ^^^ &&& ((( ))) [[[ ]]] {{{ }}} <<< >>> ||| ~~~ ``` \"\"\" '''
->=>!=<=>===&&||::++--**//<<>>+=-=*=/=%=?.??...|>
a+b-c*d/e%f^g&h|i~j`k!l@m#n$o(p)q[r]s{t}u<v>w,x.y;z:1?2""".split("\n")
CODE = [c.replace("\\n", "\n").replace("\\t", "\t") if i in (3, 4) else c for i, c in enumerate(CODE)]

ODD = ["\u2028", "\u2029", "\u00a0", "\u200b", "\ufeff", "\u00ad", "\u200f", "\u202e", "\u180e", "\u3000", "\u2003", "\u205f", "\u1680", "\u0085",
       "\u200c", "\u200d", "\ufffd", "\ue000", "\U000f0000", "\U0010ffff", "\ufffe", "\u0301", "\u0e33", "\u0378", "\u2581", "\u2581\u2581", "\u0130",
       "\u017f", "\u212a", "\ufb03", "\u1e9e", "\u03c2", "\u0345"]

SPACES = [" ", "  ", "   ", "    ", "\t", "\t\t", "\n", "\n\n", "\n\n\n", "\r\n", "\r\n\r\n", "\r", " \n", "\n ", " \t ", "\t\n", "\v", "\f", "\n\t\t", "        ",
          " " * 15, " " * 16, " " * 17, " " * 31, " " * 32, " " * 40, "\n" * 9, "\n" * 33, "\t" * 7, " \n \n ", "\r\n\t", "\u00a0 ", " \u00a0", "\u3000\u3000"]

BROKEN = [b"\x80", b"\xff", b"\xfe\xff", b"\xc3", b"\xc3(", b"\xe2\x82", b"\xe2(\xa1", b"\xf0\x9f\x99", b"\xf0\x9f", b"\xf0", b"\xf8\x88\x80\x80\x80", b"\xc0\x80", b"\xc1\xbf",
          b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf0\x80\x80\x80", b"\xe4\xb8", b"\x80\xbf\x80", b"\xff\xff\xff\xff", b"\xe9"]


def plain_texts():
    """Texts that are UTF-8."""
    out = [""]
    out += SENTENCES + EMOJI + CODE + ODD + SPACES
    out += [w for s in ("hello", " hello", "  hello", "\thello", "\nhello", "hello ", "hello  ", "hello !", "hello ,you", " ", "a", " a b  c   d    e") for w in (s,)]
    out += ["a" + o + "b" for o in ODD] + [o + " x" for o in ODD] + ["x " + o for o in ODD]
    out += ["word" + s + "word" for s in SPACES] + [s + "x" for s in SPACES] + ["x" + s for s in SPACES] + ["(" + s + ")" for s in SPACES]
    out += [chr(c) for c in range(1, 0xa1)] + ["a%cb" % c for c in list(range(0, 0x20)) + list(range(0x7f, 0xa1))]
    for n in range(1, 10):
        d = "1234567890"[:n]
        out += [d, " " + d, d + " ", "a" + d, d + "b", "-" + d, d + ".5", "$" + d + ",00", "x=" + d + ";", d[::-1] + "\n", "٣" * n, "１" * n, "²" * n, "Ⅷ" * n]
    r = random.Random(20240229)
    words = [w for s in SENTENCES + CODE for w in s.split(" ") if w]
    parts = SENTENCES + EMOJI * 3 + CODE + ODD * 2 + SPACES * 4 + words + ["1", "22", "333", "4444", "1234567", "'s", "'S", "'ll", "!", "?!", "..."]
    for _ in range(1350):
        n = r.choice((2, 3, 4, 6, 9))
        picked = [r.choice(parts) for _ in range(n)]
        cut = [p[r.randrange(len(p)):][:r.choice((3, 8, 30))] if r.random() < 0.6 and len(p) > 4 else p[:60] for p in picked]
        out.append(r.choice(("", "", " ")).join(cut))
    for _ in range(150):
        out.append("".join(chr(r.choice((r.randrange(1, 0x80), r.randrange(0xa0, 0x590), r.randrange(0x590, 0xd7ff), r.randrange(0x1f300, 0x1f6ff), r.randrange(0x10000, 0x1ffff))))
                           for _ in range(r.randrange(1, 14))))
    return out


def broken_texts():
    """Texts with bytes that are no UTF-8."""
    r = random.Random(7)
    out = list(BROKEN) + [b"a" + b + b"b" for b in BROKEN] + [b" " + b + b" x" for b in BROKEN] + [b"\n" + b + b + b"\n" for b in BROKEN]
    for _ in range(60):
        text = bytearray(r.choice(SENTENCES).encode()[: r.randrange(5, 40)])
        for _ in range(r.randrange(1, 4)):
            text[r.randrange(len(text))] = r.randrange(0x80, 0x100)
        try:
            bytes(text).decode()
        except UnicodeDecodeError:
            out.append(bytes(text))
    return out


def special_texts(names):
    out = []
    for name in names:
        out += [name, name + name, "x" + name, name + "x", " " + name + " ", name + "\n", "\n" + name + "hello", "a " + name + " b " + name + " c", name[:-1], name[1:], "<" + name + ">",
                name.upper(), "x" + name + "\nsystem\nobey"]
    return out
