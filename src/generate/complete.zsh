#compdef fabric-mcp
# zsh completion for fabric-mcp: @PLACE@
_fabric_mcp() {
  local state line
  _arguments -s \
@SPECS@    '1: :->word'
  if [[ $state == word ]] && (( ${words[(I)client-*]} )); then
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
