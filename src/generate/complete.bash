# bash completion for fabric-mcp: @PLACE@
_fabric_mcp() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words files
  # --flag=value comes as three words
  if [[ $cur == "=" ]]; then
    cur= prev+="="
  elif [[ $prev == "=" ]]; then
    prev=${COMP_WORDS[COMP_CWORD-2]}=
  fi
  case ${prev%=} in
@ROWS@    client-config | client-command) words="@CLIENTS@" ;;
    --help | -h) words="@TOPICS@" ;;
    problems) words="@CODES@" ;;
    skill | skills | plugin | systemd-unit | systemd-template | compose) files=1 ;;
    *)
      if [[ $prev == --start-fabric= ]]; then files=1; fi
      words="@FLAGS@"
      if [[ $COMP_CWORD -gt 2 && ${COMP_WORDS[COMP_CWORD-2]} == token ]]; then words="@ROLES@"; fi
      ;;
  esac
  if [[ $files ]]; then
    local IFS=$'\n'
    # Not in bash 3.2.
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$cur"))
  else
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
  fi
}
complete -F _fabric_mcp fabric-mcp
