package main

import (
	"flag"
	"fmt"
	"io"
	"strings"
)

const completionHead = `Usage: warmroute completion bash|zsh|fish

Example:
  source <(warmroute completion bash)
`

// runCompletion prints a shell's completion of commands and of the gateway's flags.
func runCompletion(args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("warmroute completion", flag.ContinueOnError)
	if err := parse(fs, args, stderr, plainUsage(completionHead)); err != nil {
		return err
	}
	all, _ := newFlags()
	var flags []string
	all.VisitAll(func(f *flag.Flag) { flags = append(flags, "-"+f.Name) })
	names, words := strings.Join(commands, " "), strings.Join(flags, " ")
	switch shell := fs.Arg(0); {
	case fs.NArg() != 1:
		return usagef("completion needs the name of one shell: bash, zsh or fish")
	case shell == "bash":
		fmt.Fprintf(stdout, bashCompletion, names, words)
	case shell == "zsh":
		fmt.Fprintf(stdout, "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n"+bashCompletion, names, words)
	case shell == "fish":
		fmt.Fprintf(stdout, "complete -c warmroute -n __fish_use_subcommand -a %q\n", names)
		all.VisitAll(func(f *flag.Flag) {
			what, text := flag.UnquoteUsage(f)
			wants := ""
			if what != "" {
				wants = " -r"
			}
			fmt.Fprintf(stdout, "complete -c warmroute -o %s%s -d '%s'\n", f.Name, wants,
				strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", " ").Replace(text))
		})
	default:
		return usagef("there is no completion for %q; there are bash, zsh and fish", shell)
	}
	return nil
}

const bashCompletion = `_warmroute() {
	local cur=${COMP_WORDS[COMP_CWORD]}
	case $cur in
	-*) COMPREPLY=($(compgen -W "%[2]s" -- "$cur")) ;;
	*) if ((COMP_CWORD == 1)); then COMPREPLY=($(compgen -W "%[1]s" -- "$cur")); else COMPREPLY=($(compgen -f -- "$cur")); fi ;;
	esac
}
complete -o default -F _warmroute warmroute
`
