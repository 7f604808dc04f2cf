"""Write ``tests/data/tokenizer_expectations.json.gz``: strings and the ids that transformers gives them.

Run by hand, with the development extra installed; the conversion alone takes half a minute:

    python tests/oracle/make_tokenizer_expectations.py MODEL.gguf tests/data/tokenizer_expectations.json.gz

The strings come from a fixed seed. Runs of 32 or more spaces are left out: there the two libraries cut differently.
"""

# ruff: noqa: RUF001 (characters that look alike are what this is about)

from __future__ import annotations

import gzip
import json
import random
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

SEED = 20250311


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


def words(text: str) -> list[str]:
    return text.split()


SENTENCES = lines("""
The quick brown fox jumps over the lazy dog.
Je n'ai pas encore mangé, mais l'été à Besançon est déjà là.
Façade, Élan, naïve Zoë – 45 €
Größere Straßenbahnen überqueren täglich die Brücke.
El niño comió piñas; ¿qué más quería?
Não há pão na cozinha, só maçãs.
Perché la città è così silenziosa?
Dziękuję, zażółć gęślą jaźń.
Příliš žluťoučký kůň úpěl ďábelské ódy.
Árvíztűrő tükörfúrógép.
Îmi place să citesc în fiecare seară.
Hyvää päivää, mitä kuuluu?
Räksmörgås och blåbär på ön.
Það er kalt úti í dag.
Iğdır'da çiçekler açtı, şimdi yağmur yağıyor.
Tôi đang học tiếng Việt ở Đà Nẵng.
Saya suka makan nasi goreng setiap pagi.
Ninapenda kusoma vitabu usiku.
Ọjọ́ dára lónìí, ẹ kú iṣẹ́.
Съешь же ещё этих мягких французских булок.
Їжак з'їв яблуко під ґанком.
Љубав је најлепша реч.
Бүгін ауа райы жақсы болып тұр.
Η γάτα κοιμάται στον ήλιο.
Μῆνιν ἄειδε θεὰ Πηληϊάδεω Ἀχιλῆος
Ես սիրում եմ կարդալ։
დღეს კარგი ამინდია.
שלום עולם, מה שלומך היום?
בְּרֵאשִׁית בָּרָא
مرحبا بالعالم، كيف حالك؟
من کتاب‌ها را دوست دارم.
مجھے اردو پسند ہے۔
मुझे हिन्दी में लिखना अच्छा लगता है।
আমি বাংলায় গান গাই।
ਮੈਨੂੰ ਪੰਜਾਬੀ ਆਉਂਦੀ ਹੈ।
મને ગુજરાતી ગમે છે.
ମୁଁ ଓଡ଼ିଆ ପଢ଼େ।
எனக்கு தமிழ் பிடிக்கும்.
నాకు తెలుగు చదవడం ఇష్టం.
ನನಗೆ ಕನ್ನಡ ಗೊತ್ತು.
എനിക്ക് മലയാളം ഇഷ്ടമാണ്.
මම සිංහල කතා කරමි.
ฉันชอบกินข้าวผัดทุกวัน
ຂ້ອຍມັກອ່ານປຶ້ມ
ကျွန်တော် မြန်မာစာ ဖတ်တယ်။
ខ្ញុំចូលចិត្តអានសៀវភៅ។
བོད་ཡིག་འདི་ཡག་པོ་འདུག
አማርኛ እወዳለሁ።
Би монгол хэлээр ярьдаг.
ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ
今天天气很好，我们去公园吧。
今天天氣很好，我們去公園吧。
今日はとても良い天気ですね。カタカナとひらがな。
ﾊﾝｶｸｶﾅ と ＺＥＮＫＡＫＵ
오늘은 날씨가 참 좋네요.
ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ
ᐃᓄᒃᑎᑐᑦ
ߒߞߏ ߞߊ߲
ⵜⴰⵎⴰⵣⵉⵖⵜ
𐌰𐍄𐍄𐌰 𐌿𐌽𐍃𐌰𐍂
𓀀𓁐𓃭 𒀭𒂗
∀x ∈ ℝ: ⌈x⌉ = −⌊−x⌋, ∑ₙ n² ≠ ∞
½ + ⅓ = ⅚; 10⁻³ µm; 25 °C; 7′ 5″
“Quoted”, ‘single’, «guillemets», „low“ … — – ‐ ·
""")

GIVEN = words("""
James Olivia Mohammed Fatima Wei Xiulan Hiroshi Yuki Jiyoung Minjun Priya Arjun Lakshmi Rajesh Anastasia Dmitri Olga
Svetlana Giuseppe Francesca Jürgen Käthe François Hélène José María João Conceição Łukasz Małgorzata Jiří Božena László
Erzsébet Ștefan Ioana Åsa Bjørn Søren Guðrún Þorsteinn Aleksi Päivi Mehmet Ayşe Nguyễn Thị Siti Budi Kwame Adaeze
Chukwuemeka Oluwaseun Ọláyínká Tendai Thandiwe Sizwe Aisha Youssef Layla Omar Shirin Darius Ariel Yael Itzhak Eleni
Nikolaos Dimitrios Siobhán Niamh Caoimhe Eilidh Rhys Llewellyn Owain Maëlle Loïc Noël Zoë Chloë Beyoncé D'Angelo
Jean-Luc Anne-Marie Mary-Jane Kaʻiulani Leilani Nizhoni Xóchitl Cuauhtémoc Quetzal Tupac Inti Saoirse Vytautas Jonė
Jānis Ilze Kristjan Õnne Gintarė Andrej Nebojša Đorđe Željko Çağla Gökhan
Иван Наталья Сергей Владислав Олександр Ганна Γιώργος Ελένη Հայկ Անահիտ გიორგი ნინო דוד שרה محمد فاطمة علی زهرا
अमित सुनीता রহিম শ্যামলী முருகன் மீனாட்சி రాముడు ಸೀತಾ രാധ สมชาย มาลี 王伟 李娜 張三豐 田中太郎 鈴木花子 김민수 박지영
""")

FAMILY = words("""
Smith O'Brien MacDonald Müller Schröder Weiß Groß Lefèvre Dubois García Hernández Nuñez Araújo Gonçalves Ferreira Rossi
D'Annunzio Kowalski Wójcik Świętochowski Dvořák Nováková Szabó Nagy Popescu Țurcanu Johansson Ångström Sørensen Ødegaard
Sigurðardóttir Virtanen Hämäläinen Yılmaz Öztürk Trần Phạm Wijaya Mensah Okonkwo Adébáyọ̀ Mbeki Nkosi Al-Farsi Haddad
Ben-David Goldschmidt Papadopoulos Venkataraman Mukherjee Subramaniam Chatterjee Tchaikovsky Shostakovich Kuznetsova
Khachaturian Shevardnadze Wittgenstein Featherstonehaugh Cholmondeley Xochimilco Hakuhō Kurosawa Nakamura Zhou Ouyang
Иванов Достоевский Шевченко Παπαδόπουλος Սարգսյան ბერიძე כהן الحسيني शर्मा ঠাকুর 司马相如 佐々木 황보
""")

EMOJI = words("""
😀 😂 🙃 🤖 👾 🫠 🫨 🪿 ❤️ ❤ ☺️ ✈️ ☎ ⚡ ⚽ 👍🏽 👩🏿‍🚀 👨‍👩‍👧‍👦 🏳️‍🌈 🏴‍☠️
🏴󠁧󠁢󠁳󠁣󠁴󠁿 🇩🇪 🇺🇦 🇯🇵🇰🇷 1️⃣ #️⃣ ©️ ®️ ™ ‼️ 🔟 🀄 🃏 🅰️ 🈵 💯 🧑🏻‍❤️‍💋‍🧑🏾 🐻‍❄️
""")

CODE = [
    "def f(x: int) -> int:\n    return x ** 2  # square\n",
    "class A:\n\tdef __init__(self):\n\t\tself.x = {'a': [1, 2, 3]}\n",
    "for (int i = 0; i < n; ++i) {\n        sum += a[i] * b[i];\n}\n",
    "#include <vector>\ntemplate <typename T> T max(T a, T b) { return a > b ? a : b; }\n",
    'fn main() {\n    println!("{:?}", vec![1u8; 4]);\n}\n',
    "SELECT name, COUNT(*) FROM users WHERE age >= 18 GROUP BY name ORDER BY 2 DESC;\n",
    "const f = async (x) => { await g(x?.y ?? 'z'); };\n",
    "if [ -z \"$HOME\" ]; then\n  echo 'none' >&2 | tee -a /tmp/log\nfi\n",
    '{"key": [true, false, null, -1.5e-7, "\\u00e9"], "nested": {"a": {}}}',
    "all: build\n\t@$(MAKE) -C src\n\n\n\n.PHONY: all\n",
    "\\begin{align}\n  E &= mc^2 \\\\\n\\end{align}\n",
    "# Title\n\n* one\n    * two\n\n```python\nprint('hi')\n```\n\n| a | b |\n|---|---|\n",
    "https://example.org/a/b?c=d&e=f%20g#h user.name+tag@example.co.uk",
    "diff --git a/x b/x\n@@ -1,3 +1,4 @@\n-old\n+new\n \n",
    "body { margin: 0 auto; } /* centred */ a:hover::before { content: '\\201C'; }\n",
    "module M where\n\nmain :: IO ()\nmain = mapM_ print $ filter even [1..10] >>= \\x -> [x, x*x]\n",
    "MOV  EAX, 0xDEADBEEF\nJNZ  .loop        ; again\n",
    "0 1 12 123 1234 12345 123456 3.14159 1,000,000 1e10 0x1F 0b1010 007 ½ ² ٣٤ ४५ Ⅻ",
]

HTML = words("""
<table> <caption> <thead> <tbody> <tr> <th> <td> </table> </tr> </td> <h1> </h1> <h7> <blockquote> <strong> <em> <b>
</b> <i> <u> <s> <sub> <sup> <code> </code> <a> </a> <html> <body> <img> <span> <bbox> <ul> <li> <div> </div> <iframe>
<footer> <p> <br/> <B> < b> <b > <<b>> <a href="x"> <!-- c --> &nbsp; &lt;b&gt; <script> </html>
""")

CONTROL = words("""
<pad> <eos> <bos> <unk> <mask> <start_of_turn> <end_of_turn> <unused0> <unused98> <unused99> <unused6241> <unused6242>
[multimodal] <start_of_image> <end_of_image> <start_of_turn <Start_of_turn> </s> <s> <0x0A> <0xFF> [INST] <|im_start|>
""")

WHITE = [" ", "  ", "   ", "\t", "\t\t", "\n", "\n\n", "\r\n", "\r", "\v", "\f", "\u00a0", "\u2003", "\u3000", "\u200b"]

# First and last code point of blocks that hold letters of a script, or symbols.
BLOCKS = words("""
0041-007A 00C0-00FF 0100-017F 0180-024F 0250-02AF 02B0-02FF 0370-03FF 0400-04FF 0500-052F 0530-058F 0590-05FF 0600-06FF
0700-074F 0750-077F 0780-07BF 07C0-07FF 0800-083F 0840-085F 08A0-08FF 0900-097F 0980-09FF 0A00-0A7F 0A80-0AFF 0B00-0B7F
0B80-0BFF 0C00-0C7F 0C80-0CFF 0D00-0D7F 0D80-0DFF 0E00-0E7F 0E80-0EFF 0F00-0FFF 1000-109F 10A0-10FF 1100-11FF 1200-137F
13A0-13FF 1400-167F 1680-169F 16A0-16FF 1700-171F 1780-17FF 1800-18AF 1900-194F 1950-197F 1A00-1A1F 1B00-1B7F 1BC0-1BFF
1C00-1C4F 1C50-1C7F 1D00-1D7F 1E00-1EFF 1F00-1FFF 2000-206F 2070-209F 20A0-20CF 2100-214F 2150-218F 2190-21FF 2200-22FF
2300-23FF 2460-24FF 2500-257F 2580-259F 25A0-25FF 2600-26FF 2700-27BF 2800-28FF 2C00-2C5F 2C60-2C7F 2C80-2CFF 2D30-2D7F
2E80-2EFF 3000-303F 3040-309F 30A0-30FF 3100-312F 3130-318F 31F0-31FF 3200-32FF 3300-33FF 3400-4DBF 4E00-9FFF A000-A48C
A4D0-A4FF A500-A63F A640-A69F A720-A7FF A840-A87F A880-A8DF A900-A92F A930-A95F A980-A9DF AA00-AA5F AB00-AB2F AC00-D7A3
F900-FAFF FB00-FB4F FB50-FDFF FE30-FE4F FE70-FEFF FF00-FFEF 10000-1007F 10280-1029F 10330-1034F 10380-1039F 10400-1044F
10900-1091F 10A00-10A5F 11000-1107F 12000-123FF 13000-1342F 16800-16A3F 1B000-1B0FF 1D100-1D1FF 1D400-1D7FF 1F000-1F02F
1F100-1F1FF 1F300-1F5FF 1F600-1F64F 1F680-1F6FF 1F900-1F9FF 1FA70-1FAFF 20000-2A6DF 2F800-2FA1F 30000-3134F
""")


def white_space() -> Iterator[str]:
    for n in range(1, 32):
        yield from (" " * n, " " * n + "x", "x" + " " * n, "x" + " " * n + "y")
    for n in [*range(1, 34), 40, 62, 63, 100, 200]:
        yield from ("\n" * n, "a" + "\n" * n + "b", "\t" * n, "\t" * n + "test")
    yield from ("one  two   three     four", "\t \ttest", " \t x", " \n ", "a\n\nb", " \n\n  \n   x", "", "\r\n\r\n")


def words_of_block(rng: random.Random, block: str) -> Iterator[str]:
    first, last = (int(end, 16) for end in block.split("-"))
    for _ in range(4):
        drawn = ("".join(chr(rng.randint(first, last)) for _ in range(rng.randint(1, 7))) for _ in range(3))
        yield rng.choice(["", " "]) + " ".join(drawn)


def any_character(rng: random.Random) -> str:
    while True:
        char = chr(rng.choice([rng.randrange(0x80), rng.randrange(0x10000), rng.randrange(0x110000)]))
        if unicodedata.category(char) != "Cs":
            return char


def strings(pieces: list[str]) -> list[str]:
    """The strings in order, none twice; ``pieces`` are words of the vocabulary to build some of them from."""
    rng = random.Random(SEED)
    found: list[str] = [*white_space(), *SENTENCES, *CODE]
    found += [" " + name for name in GIVEN + FAMILY]
    found += [f"{rng.choice(GIVEN)} {rng.choice(FAMILY)}" for _ in range(250)]
    found += EMOJI + ["".join(rng.sample(EMOJI, 3)) for _ in range(30)]
    found += [" ".join(rng.sample(EMOJI, 2)) + rng.choice(SENTENCES)[:9] for _ in range(20)]
    found += HTML + ["".join(rng.sample(HTML, 4)) for _ in range(40)] + ["<code>x</code>", "<td> a  b </td>"]
    found += CONTROL + [rng.choice(CONTROL) + rng.choice(["user\n", " x", "", "\n"]) for _ in range(40)]
    found += ["".join(rng.choice([*CONTROL, *SENTENCES, " "]) for _ in range(3)) for _ in range(40)]
    for block in BLOCKS:
        found += words_of_block(rng, block)
    for sentence in SENTENCES:
        found += [unicodedata.normalize("NFD", sentence), sentence.upper(), " " + sentence.replace(" ", "  ")]
        found += [sentence[: rng.randint(1, len(sentence))]]
    found += [base + chr(mark) for base in "aeonяא中" for mark in (0x300, 0x301, 0x308, 0x323, 0x489, 0x5B0, 0x20E3)]
    found += [chr(code) for code in [*range(0x21), *range(0x7F, 0xA1)]] + ["a\0b", "\0", "\0\0x", "\u2581", "a\u2581 b"]
    found += [chr(code) for code in (0xE000, 0xF8FF, 0xFFFD, 0xFFFE, 0xFFFF, 0xFEFF, 0x1FFFE, 0xE0001, 0x10FFFF)]
    found += ["".join(any_character(rng) for _ in range(rng.randint(1, 20))) for _ in range(200)]
    found += ["".join(chr(rng.randint(32, 126)) for _ in range(rng.randint(1, 40))) for _ in range(150)]
    found += ["".join(rng.choice(pieces) for _ in range(rng.randint(2, 8))) for _ in range(250)]
    pool = [*SENTENCES, *GIVEN, *EMOJI, *HTML, *CODE, *WHITE, *WHITE, *WHITE]
    found += ["".join(rng.choice(pool)[:24] for _ in range(rng.randint(2, 6))) for _ in range(250)]
    return [text for text in dict.fromkeys(found) if not re.search("[ \u2581]{32}", text)]


def transformers_encoder(model: Path) -> tuple[Callable[[str], list[int]], list[str]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model.parent, gguf_file=model.name)
    vocabulary = tokenizer.get_vocab()
    special = set(tokenizer.all_special_tokens)
    pieces = [name.replace("\u2581", " ") for name in sorted(vocabulary) if name not in special and "<" not in name]
    return (lambda text: list(tokenizer.encode(text, add_special_tokens=False))), pieces


def main(model: str, destination: str) -> None:
    encode, pieces = transformers_encoder(Path(model))
    cases = [[text, encode(text)] for text in strings(pieces)]
    body = json.dumps({"seed": SEED, "cases": cases}, separators=(",", ":")).encode()
    Path(destination).write_bytes(gzip.compress(body, 9, mtime=0))
    print(f"{len(cases)} strings, {len(body)} bytes of JSON", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
