"""The words of a vLLM command as settings, read as vLLM's own parser reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from dummyaudit.engine import flags, values
from dummyaudit.engine.nested import Keys, pull_dotted, read_object
from dummyaudit.engine.said import Origin, Said, Settings, Value
from dummyaudit.engine.words import Word, is_flag, is_unknowable, refusal, shown, unknowable
from dummyaudit.errors import InputError

VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"

_SEVERAL_WORDS = re.compile(r"\$[{(]?(?:[@*]|\w*(?:arg|opt|flag|param)\w*)[^/]*", re.IGNORECASE)
_DRAFTED = "num_speculative_tokens"
_COMPILATION: dict[str, tuple[str, Callable[[Origin, object], Value]]] = {
    "cudagraph_mode": ("cudagraph_mode", values.cudagraph_mode),
    "cudagraph_capture_sizes": ("cudagraph_capture_sizes", values.sizes),
    "max_cudagraph_capture_size": ("max_cudagraph_capture_size", values.count),
    "mode": ("compilation_mode", values.compilation_mode),
    "level": ("compilation_mode", values.compilation_mode),  # its name in 0.11.0
}


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a command or a config file says.

    Attributes:
        settings: what is understood.
        passed_over: names of the flags and keys that are not.
        config: the file that the command's `--config` names, or None.
        words: what was read, for `combine`.
    """

    settings: Settings
    passed_over: tuple[str, ...] = ()
    config: Said | None = None
    words: tuple[Word, ...] = field(default=(), repr=False)


def combine(config: Parsed, command: Parsed) -> Parsed:
    """What a command with a config file says.

    As in vLLM the file's flags are put in front of the command's, which win. A nested config of the command replaces
    the file's as a whole, unless both give keys one by one under the same name; these merge.

    Raises:
        InputError: vLLM would refuse them together.
    """
    words = command.words
    rest = [i for i, word in enumerate(words) if word.source != "environment"]
    place = rest[0] + (not is_flag(words[rest[0]].text)) if rest else len(words)  # behind a model
    return interpret((*words[:place], *config.words, *words[place:]))


def interpret(words: Sequence[Word]) -> Parsed:
    """Reads the words behind `vllm serve`, and environment assignments among them.

    Raises:
        InputError: a value of an understood flag is missing or cannot be read, words are left over, or vLLM would
            refuse the flags together.
    """
    reading = _Reading()
    for word in words:
        if word.source == "environment":
            reading.environment(word)
    others, nested = pull_dotted([word for word in words if word.source != "environment"])
    reading.read(others)
    for name, keys in nested.items():
        reading.nested(name, keys)
    return Parsed(reading.settings(), tuple(dict.fromkeys(reading.passed_over)), reading.config, tuple(words))


class _Reading:
    """What has been read so far; a flag that comes again replaces what it said before."""

    def __init__(self) -> None:
        self.plain: Settings = {}
        self.compilation: Settings = {}
        self.speculative: Keys = {}
        self.method: Origin | None = None  # of speculative decoding
        self.config: Said | None = None
        self.positional: Said | None = None
        self.passed_over: list[str] = []

    def environment(self, word: Word) -> None:
        origin = Origin("environment", VARIABLE, word.file, word.line)
        self.plain[VARIABLE] = Said(values.switch_variable(origin, word.text.partition("=")[2]), origin)

    def read(self, words: Sequence[Word]) -> None:
        at = 0
        while at < len(words):
            word = words[at]
            at += 1
            if word.text == "--":
                for left in words[at:]:
                    self.argument(left)
                return
            if is_flag(word.text):
                rest = (words[i] for i in range(at, len(words)))
                at += self.flag(word, list(takewhile(lambda value: not is_flag(value.text), rest)))
            else:
                self.argument(word)

    def argument(self, word: Word) -> None:
        """A word that is no flag and no value of one: the model, once."""
        text = word.text
        is_model = text.strip() and text[0] != "-" and not _SEVERAL_WORDS.fullmatch(text)
        if is_model and word.source == "command" and self.positional is None:
            self.positional = Said(text, word.origin("MODEL"))
            return
        if is_unknowable(text):
            raise unknowable(word.origin("command"), text)
        flag, blank, _ = text.partition(" ")
        hint = f"write {flag} and its value as two words" if blank and text[0] == "-" else "quote values with blanks"
        raise refusal(word.origin(shown(text)), "left over, no flag takes it", hint)

    def flag(self, word: Word, following: Sequence[Word]) -> int:
        """Reads a flag and its values; returns how many of the words that follow it took."""
        name, value = flags.split(word.text, following[0].text if following else "")
        known = flags.complete(name)
        if len(known) > 1:
            raise refusal(word.origin(), f"short for any of {', '.join(known)}", "write it in full")
        flag, origin = known[0], word.origin(word.name or word.text.partition("=")[0])
        if flag in flags.SWITCHES:
            if value is not None:
                raise refusal(origin, f"takes no value, got {shown(value)}")
            setting, is_on = flags.SWITCHES[flag]
            self.plain[setting] = Said(is_on, origin)
            return 0
        if short := flags.runs_together(flag):
            raise refusal(origin, f"vLLM knows no such flag, and no {short} in it", f"write a blank behind {short}")
        if flag not in flags.UNDERSTOOD:
            self.passed_over.append(origin.name)
            if flag in flags.SPECULATIVE:
                self.method = origin
            return self.pass_over(flag, following) if value is None else 0
        if value is not None:
            self.value(flag, origin, [replace(word, text=value)], word.text)
            return 0
        if not following:
            raise refusal(origin, "needs a value")
        taken = following if flag in flags.LISTS else following[:1]
        self.value(flag, origin, taken, word.text)
        return len(taken)

    def value(self, flag: str, origin: Origin, given: Sequence[Word], spelled: str) -> None:
        """Takes the value of an understood flag."""
        text = given[0].text
        if flag in flags.LISTS:
            self.plain[flags.LISTS[flag]] = Said(values.sizes(origin, [word.text for word in given]), origin)
        elif flag in flags.CONFIGS:
            self.nested(flag, read_object(given[0], origin, is_optional=flags.CONFIGS[flag] == "speculative"))
        elif flag != "--config":
            setting, read = flags.VALUES[flag]
            self.plain[setting] = Said(read(origin, text), origin)
        elif origin.source == "config":
            self.passed_over.append(origin.name)
        elif spelled != "--config":
            raise refusal(origin, "vLLM reads a file only as --config FILE, in two words", f"write --config {text}")
        elif self.config:
            raise refusal(origin, "there is more than one, which vLLM refuses", "keep one")
        elif is_unknowable(text):
            raise unknowable(origin, text)
        else:
            self.config = Said(text, origin)

    def pass_over(self, flag: str, following: Sequence[Word]) -> int:
        """How many of the words that follow belong to a flag that is not understood: not the model."""
        arity = flags.takes(flag)
        if arity == "none" or not following:
            return 0
        if arity != "some" and self.positional is None:
            return 1
        for word in following[1:]:
            if is_unknowable(word.text):
                raise unknowable(word.origin("command"), word.text)
        return len(following)

    def nested(self, flag: str, keys: Keys) -> None:
        """Takes the keys of a nested config, in place of all that were said of it before."""
        known = flags.complete(flag)[0]
        kind = flags.CONFIGS.get(known)
        if kind == "compilation":
            self.compilation = dict(self.read_compilation(keys))
        elif kind == "speculative":
            self.speculative = {key.replace("-", "_"): value for key, value in keys.items()}
            self.passed_over += [origin.name for key, (_, origin) in self.speculative.items() if key != _DRAFTED]
        else:
            self.passed_over += [origin.name for _, origin in keys.values()]
            if known in flags.UNDERSTOOD:
                raise refusal(next(iter(keys.values()))[1], f"{known} has no keys")

    def read_compilation(self, keys: Keys) -> Iterator[tuple[str, Said]]:
        for key, (value, origin) in keys.items():
            if key not in _COMPILATION and key.replace("-", "_") in _COMPILATION:
                raise refusal(origin, "vLLM knows no such key", f"write {key.replace('-', '_')}")
            if key not in _COMPILATION:
                self.passed_over.append(origin.name)
            elif value is not None or key == "cudagraph_capture_sizes":
                setting, read = _COMPILATION[key]
                yield setting, Said(read(origin, value), origin)

    def settings(self) -> Settings:
        """All that was said, by setting."""
        out = dict(self.plain)
        for name, said in self.compilation.items():
            if name in out:
                raise _twice(out[name], said.origin)
            out[name] = said
        self.settle_drafted(out)
        other = out.pop("cp_kv_cache_interleave_size", None)
        if other and out.get("dcp_kv_cache_interleave_size", other).value in (1, other.value):
            out["dcp_kv_cache_interleave_size"] = other
        if self.positional:
            if "model" in out and out["model"].origin.source == "command":
                raise _twice(out["model"], self.positional.origin)
            out["model"] = self.positional
        return out

    def settle_drafted(self, out: Settings) -> None:
        """num_speculative_tokens of the nested config; "auto" where vLLM takes it from the draft model."""
        drafted, origin = self.speculative.get(_DRAFTED, (None, self.method))
        origin = origin or next((origin for _, origin in self.speculative.values()), None)
        if origin is None:
            return
        if _DRAFTED in out and _DRAFTED in self.speculative:
            raise _twice(out[_DRAFTED], origin)
        if drafted is not None:
            out[_DRAFTED] = Said(values.count(origin, drafted), origin)
        out.setdefault(_DRAFTED, Said("auto", origin))


def _twice(said: Said, other: Origin) -> InputError:
    return refusal(said.origin, f"given beside {other}, which vLLM refuses", "give one of them")
