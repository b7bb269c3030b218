# fish completion for fabric-mcp: @PLACE@
complete -c fabric-mcp -f
complete -c fabric-mcp -l start-fabric -F
@ROWS@complete -c fabric-mcp -n '__fish_seen_subcommand_from client-config client-command' -a '@CLIENTS@'
complete -c fabric-mcp -n 'set -l words (commandline -opc | string replace -- --generate= ""); test "$words[-2]" = token' -a '@ROLES@'
complete -c fabric-mcp -n 'set -l words (commandline -opc | string replace -- --generate= ""); contains -- "$words[-1]" skill skills plugin systemd-unit systemd-template compose' -F
complete -c fabric-mcp -n 'set -l words (commandline -opc); test "$words[-1]" = problems' -a '@CODES@'
complete -c fabric-mcp -n '__fish_contains_opt -s h help; and not contains problems (commandline -opc)' -a '@TOPICS@'
