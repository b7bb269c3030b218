# bash completion for fabric-mcp: @PLACE@
_fabric_mcp() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words
  # --flag=value comes as three words
  if [[ $cur == "=" ]]; then
    cur=
  elif [[ $prev == "=" ]]; then
    prev=${COMP_WORDS[COMP_CWORD-2]}
  fi
  case $prev in
@CASES@    client-config | client-command) words="@CLIENTS@" ;;
    --help | -h) words="@TOPICS@" ;;
    *) words="@FLAGS@" ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -F _fabric_mcp fabric-mcp
