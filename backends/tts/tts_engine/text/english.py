"""English word tables for the normaliser: what its library leaves unread."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Written with a full stop, by what must follow for them not to be a plain word or a sentence's end. Lower-case keys.
TITLES = {  # a name
    "mr": "mister",
    "mrs": "missus",
    "ms": "miz",
    "dr": "doctor",
    "prof": "professor",
    "rev": "reverend",
    "hon": "honorable",
    "gen": "general",
    "capt": "captain",
    "col": "colonel",
    "lt": "lieutenant",
    "sgt": "sergeant",
    "gov": "governor",
    "sen": "senator",
    "rep": "representative",
    "pres": "president",
    "messrs": "messers",
    "mt": "mount",
    "ft": "fort",
    "st": "saint",
}
NUMBERED = {  # a number
    "fig": "figure",
    "vol": "volume",
    "ch": "chapter",
    "pp": "pages",
    "p": "page",
    "ext": "extension",
    "apt": "apartment",
    "no": "number",
    "nos": "numbers",
    "approx": "approximately",
    "est": "established",
    "sec": "section",
    "eq": "equation",
}
MIDDLE = {  # anything
    "vs": "versus",
    "e.g": "for example",
    "i.e": "that is",
    "cf": "compare",
    "viz": "namely",
    "a.k.a": "also known as",
}
CLOSING = {  # anything; before a capital their full stop ends the sentence too
    "etc": "et cetera",
    "inc": "incorporated",
    "corp": "corporation",
    "ltd": "limited",
    "bros": "brothers",
    "jr": "junior",
    "sr": "senior",
    "ave": "avenue",
    "blvd": "boulevard",
    "rd": "road",
    "hwy": "highway",
    "dept": "department",
    "univ": "university",
    "misc": "miscellaneous",
    "st": "street",
    "approx": "approximately",
}
# Written without one too.
BARE_ABBREVIATIONS = {
    "Mr": "mister",
    "Mrs": "missus",
    "Dr": "doctor",
    "Jr": "junior",
    "vs": "versus",
    "etc": "et cetera",
}

# Capitals read as a word.
PRONOUNCED_ACRONYMS = _words("""
    NASA NATO OPEC AIDS RAM ROM PIN ZIP SWAT GIF SIM LAN WAN BIOS ASAP NAFTA LEGO IKEA SARS COVID MERS FIFA UEFA
    NASCAR YOLO JSTOR MIDI WASP DOS CAD ERA SCUBA RADAR LASER HIPAA OSHA FEMA NOAA
""")
# Short words people write in capitals to stress them; other short capitals are spelled.
STRESSED_WORDS = _words("""
    a an and any are as at ask bad be best big but buy by call came can cut day did do done dont down each else even
    ever eye far fast few find five for four free from fun full game get give go god gone good got great had hard
    has have he help her here hers hey hi high him his hit home hot how huge i if in into is its job join just keep
    know last late left less let life like line live long look lost lot love low made make man many may me mine more
    most move much must my name near need never new next nice no non none nor not now of off oh ok old on once one
    only open or our out over own pay plan play plus put ran read real red rest run sad safe said same save saw say
    see seen sell set she should show shut six so some soon stay stop such sure take talk tell ten than that the
    them then they this time to today told too took top try turn two up upon use used very via wait want war was way
    we well went were what when who whom why wife will win wish with won work yes yet you your zero
""")
ROMAN_NUMERALS = _words("II III IV VI VII VIII IX XI XII XIII XIV XV XVI XVII XVIII XIX XX")
# ("I", "V" and "X" alone are letters more often than numbers.)
ROMAN_VALUES = {"I": 1, "V": 5, "X": 10}
REIGNING_NAMES = _words("""
    Henry Louis George Edward Richard William James Charles Elizabeth Mary Philip Pius John Paul Benedict Leo
    Gregory Innocent Alexander Nicholas Catherine Napoleon Frederick Francis Ferdinand Ptolemy Ramses Clement Urban
    Otto Margaret Harald Olaf Gustav Peter
""")

SYMBOL_NAMES = {
    "&": "and",
    "%": "percent",
    "@": "at",
    "+": "plus",
    "=": "equals",
    "$": "dollars",
    "£": "pounds",
    "€": "euros",
    "¥": "yen",
    "°": "degrees",
    "/": "slash",
    "#": "number",
    "*": "star",
    "<": "less than",
    ">": "greater than",
}
URL_SYMBOLS = {
    ".": "dot",
    "/": "slash",
    "@": "at",
    "-": "dash",
    "_": "underscore",
    ":": "colon",
    "+": "plus",
    "~": "tilde",
}
DOMAIN_ENDINGS = _words("com org net edu gov io ai uk de fr eu us info dev co ca au tv me app")
# Capitalised words that begin a sentence far more often than they are names.
SENTENCE_STARTERS = _words("""
    He She It We They You The This That There A An In On At But And My His Her Its Our Their What When If
""")
CONJUNCTIONS = _words("""
    and but or nor so yet because although though while when where which who that if unless until since as
""")
