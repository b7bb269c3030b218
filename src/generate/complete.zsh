#compdef fabric-mcp
# zsh completion for fabric-mcp: @PLACE@
_fabric_mcp() {
  local state line
  _arguments -s \
@ROWS@    '*: :->word'
  if [[ $state == word ]] && (( CURRENT > 2 )) && [[ ${words[CURRENT-2]#--generate=} == token ]]; then
    compadd @ROLES@
  elif [[ $state == word && ${words[CURRENT-1]#--generate=} == (skill|skills|plugin|systemd-*|compose) ]]; then
    _files
  elif [[ $state == word && ${words[CURRENT-1]} == problems ]]; then
    compadd @CODES@
  elif [[ $state == word ]] && (( ${words[(I)client-*]} )); then
    compadd @CLIENTS@
  elif [[ $state == word ]] && (( ${words[(I)(-h|--help)]} )); then
    compadd @TOPICS@
  fi
}
if [[ $funcstack[1] == _fabric-mcp ]]; then
  _fabric_mcp "$@"
else
  compdef _fabric_mcp fabric-mcp
fi
