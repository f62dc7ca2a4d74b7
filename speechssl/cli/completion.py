"""What completes `speechssl` in a shell: a function in the shell's own language, with all verbs, options and choices in it.

A shell calls nothing of ours while somebody types: to import the options of all verbs takes a second.
"""

from __future__ import annotations

from speechssl.cli.parser import parser_of
from speechssl.cli.verbs import GROUPS, VERBS, config_of
from speechssl.errors import InputError

BASH = """_speechssl() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} first=${{COMP_WORDS[1]}} second=${{COMP_WORDS[2]}}
  local words=
  case "$COMP_CWORD:$first $second:$before" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _speechssl speechssl
"""
ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


def script(shell: str) -> str:
    """For bash, or for zsh, which takes bash's by its module bashcompinit. Files complete where nothing else does.

    Raises InputError for another shell.
    """
    if shell not in ("bash", "zsh"):
        raise InputError(f"there is no completion for {shell}; give bash or zsh")
    first = dict.fromkeys((*(verb.partition(" ")[0] for verb in VERBS), "--help", "--version"))
    cases = [f'    1:*) words="{" ".join(first)}" ;;']
    for group in GROUPS:
        inside = [verb.partition(" ")[2] for verb in VERBS if verb.startswith(f"{group} ")]
        cases.append(f'    2:"{group} "*) words="{" ".join(inside)}" ;;')
    for verb in VERBS:
        options = []
        typed = f'"{verb}":' if " " in verb else f'"{verb} "*:'
        for action in parser_of(verb, config_of(verb))._actions:
            options += action.option_strings
            if action.choices and action.option_strings:
                cases.append(f'    *:{typed}{action.option_strings[0]}) words="{" ".join(map(str, action.choices))}" ;;')
        cases.append(f'    *:{typed}*) [[ $word != -* ]] || words="{" ".join(options)}" ;;')
    return (ZSH if shell == "zsh" else "") + BASH.format(cases="\n".join(cases))
