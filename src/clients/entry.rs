//! A server's entry in each client's format, and the command that adds it: as its documentation has them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::config::AUTH_TOKEN;
use crate::text::{filled, marked_lines};

use super::layout::{self, quoted};
use super::{Format, Launch, McpClient, NAME, TOKEN_PLACEHOLDER, Variable};

impl McpClient {
    /// The whole text that the client's file or dialog takes, ended by a newline.
    pub(crate) fn config(&self, program: &str, launch: &Launch) -> String {
        match self.format {
            Format::Json(key) => {
                let file = json!({key: {NAME: self.entry(program, launch)}});
                format!("{}\n", layout::text(&file, Some("  "), "\n"))
            }
            Format::Text(text) => self.text(text, program, launch),
        }
    }

    /// One of the texts beside this file, for this launch.
    fn text(&self, text: &str, program: &str, launch: &Launch) -> String {
        let (args, env, url, has_token) = match launch {
            Launch::Program { args, env } => (&args[..], &env[..], "", true),
            Launch::Url { url, token, .. } => (&[][..], &[][..], url.as_str(), *token),
        };
        let is_url = matches!(launch, Launch::Url { .. });
        let secrets = forwarded(env);
        let values = |is: &str| {
            let values = env.iter();
            let values = values
                .filter_map(|(name, value)| Some(format!("{name}{is}{}", quoted(value.as_ref()?))));
            Vec::from_iter(values).join(", ")
        };
        let marks = [
            ("@IF_URL@", is_url),
            ("@IF_PROGRAM@", !is_url),
            ("@IF_TOKEN@", has_token),
            ("@IF_SECRETS@", !secrets.is_empty()),
            ("@IF_VALUES@", !values("").is_empty()),
        ];
        let holes = [
            ("@TIMEOUT@", &*self.limit.to_string()),
            ("@PROGRAM@", &quoted(program)),
            ("@ARGS@", &layout::text(&json!(args), None, "")),
            ("@URL@", url),
            ("@SECRETS@", &layout::text(&json!(secrets), None, "")),
            ("@TOML@", &values(" = ")),
            ("@YAML@", &values(": ")),
            ("@AUTHORIZATION@", &self.authorization()),
        ];
        filled(&marked_lines(text, &marks), &holes)
    }

    /// The entry for clients that take JSON.
    pub(super) fn entry(&self, program: &str, launch: &Launch) -> Value {
        match launch {
            Launch::Program { args, env } => {
                let mut values = BTreeMap::new();
                values.extend(self.variables(env));
                let (name, variables) = self.members;
                let mut entry = match name {
                    Some(name) => json!({"command": program, name: args, variables: values}),
                    None => {
                        let words = [&[program.to_owned()], args.as_slice()].concat();
                        json!({"command": words, variables: values})
                    }
                };
                if let Some((name, value)) = self.program {
                    entry[name] = value.into();
                }
                entry
            }
            Launch::Url { url, is_sse, token } => {
                // `cli` refuses what the client does not speak.
                let names = self.urls.get(usize::from(*is_sse));
                let (kind, name) = names.copied().unwrap_or_default();
                let mut entry = json!({name: url});
                if *token {
                    entry["headers"] = json!({"Authorization": self.authorization()});
                }
                if !kind.is_empty() {
                    entry["type"] = kind.into();
                }
                entry
            }
        }
    }

    /// The variables of an entry; a secret is a reference, or empty to be filled in.
    fn variables(&self, env: &[Variable]) -> impl Iterator<Item = (String, String)> {
        env.iter().map(|(name, value)| {
            let value = value.clone().or_else(|| self.reference_to(name));
            (name.clone(), value.unwrap_or_default())
        })
    }

    /// How its entry refers to a variable, if it can.
    pub(super) fn reference_to(&self, variable: &str) -> Option<String> {
        let (reference, _) = self.reference?;
        Some(reference.replace("NAME", variable))
    }

    /// The value of the header `Authorization`.
    fn authorization(&self) -> String {
        let token = self.reference_to(AUTH_TOKEN);
        format!("Bearer {}", token.as_deref().unwrap_or(TOKEN_PLACEHOLDER))
    }

    /// The command that adds the server, in one line for the shell of `system`.
    ///
    /// # Errors
    /// Why there is none, as said of the client.
    pub(crate) fn command(
        &self,
        system: &str,
        program: &str,
        launch: &Launch,
    ) -> Result<String, String> {
        let at = usize::from(matches!(launch, Launch::Url { .. }));
        let template = self.commands.get(at);
        let template = template.ok_or("has no command that adds a server like this")?;
        if let Launch::Program { env, .. } = launch
            && let Some(name) = forwarded(env).first()
            && matches!(self.format, Format::Text(_))
        {
            return Err(format!(
                "has a command that adds servers, but the command cannot pass on {name}"
            ));
        }
        let words = template.split(' ').flat_map(|word| match (word, launch) {
            ("PROGRAM", _) => vec![program.to_owned()],
            ("ARGS", Launch::Program { args, .. }) => args.clone(),
            ("ENV", Launch::Program { env, .. }) => {
                // An empty place for the key cannot be filled in later.
                let env = self.variables(env).filter(|(_, value)| !value.is_empty());
                env.flat_map(|(name, value)| ["--env".to_owned(), format!("{name}={value}")])
                    .collect()
            }
            (
                "--header" | "HEADER" | "--bearer-token-env-var" | AUTH_TOKEN,
                Launch::Url { token: false, .. },
            ) => Vec::new(),
            ("URL", Launch::Url { url, .. }) => vec![url.clone()],
            ("TRANSPORT", Launch::Url { is_sse: true, .. }) => vec!["sse".to_owned()],
            ("TRANSPORT", _) => vec!["http".to_owned()],
            ("HEADER", _) => vec![format!("Authorization: {}", self.authorization())],
            ("JSON", _) => {
                let entry = layout::text(&self.entry(program, launch), None, "");
                vec![entry.replacen('{', &format!("{{\"name\": \"{NAME}\", "), 1)]
            }
            _ => vec![word.to_owned()],
        });
        let words: Vec<String> = words.map(|word| shell(&word, system)).collect();
        Ok(words.join(" "))
    }
}

/// The variables that TOML and YAML have the client pass on.
fn forwarded(env: &[Variable]) -> Vec<String> {
    let secrets = env.iter().filter(|(_, value)| value.is_none());
    secrets.map(|(name, _)| name.clone()).collect()
}

/// Quotes a word for a POSIX shell or for Windows.
pub(crate) fn shell(word: &str, system: &str) -> String {
    let plain = |c: char| {
        c.is_ascii_alphanumeric() || "-_./:=+,@".contains(c) || (system == "windows" && c == '\\')
    };
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    match system {
        "windows" => {
            // Backslashes are doubled only where a quote follows.
            let end = |part: &str| part[part.trim_end_matches('\\').len()..].to_owned();
            let parts = word.split('"').map(|part| part.to_owned() + &end(part));
            format!("\"{}\"", Vec::from_iter(parts).join("\\\""))
        }
        _ => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::tests::client;

    /// With this key to be written; empty if the key is set here.
    fn program(key: Option<&str>) -> Launch {
        let url = Some("http://f:1".to_owned());
        Launch::Program {
            args: vec!["--max-runs".into(), "3".into()],
            env: vec![
                ("FABRIC_BASE_URL".into(), url),
                ("FABRIC_API_KEY".into(), key.map(str::to_owned)),
            ],
        }
    }

    fn at(url: &str, is_sse: bool) -> Launch {
        let url = url.to_owned();
        Launch::Url {
            url,
            is_sse,
            token: true,
        }
    }

    fn url() -> Launch {
        at("https://mcp.example.com/mcp", false)
    }

    #[test]
    fn every_client_gets_its_own_shape() {
        let rest = |key: &str| {
            format!(
                "\"command\": \"/opt/f\",\n      \"args\": [\"--max-runs\", \"3\"],\n      \"env\": {{\n        \
                 \"FABRIC_BASE_URL\": \"http://f:1\",\n        \"FABRIC_API_KEY\": \"{key}\"\n      }}\n    }}\n  }}\n}}\n"
            )
        };
        let claude = "${FABRIC_API_KEY}";
        let code = "${env:FABRIC_API_KEY}";
        let stdio = "\"type\": \"stdio\",\n      ";
        let zed = "\"source\": \"custom\",\n      ";
        let copilot = "\"type\": \"local\",\n      ";
        for (name, servers, kind, key) in [
            ("claude-desktop", "mcpServers", "", ""),
            ("claude-code", "mcpServers", stdio, claude),
            ("vscode", "servers", stdio, code),
            ("cursor", "mcpServers", "", code),
            ("zed", "context_servers", zed, ""),
            ("windsurf", "mcpServers", "", code),
            ("cline", "mcpServers", "", code),
            ("continue", "mcpServers", "", ""),
            ("gemini-cli", "mcpServers", "", claude),
            ("jetbrains", "mcpServers", "", ""),
            ("copilot-cli", "mcpServers", copilot, claude),
            ("zoo-code", "mcpServers", "", code),
            ("antigravity", "mcpServers", "", ""),
            ("kiro", "mcpServers", "", claude),
            ("amp", "amp.mcpServers", "", claude),
            ("lm-studio", "mcpServers", "", ""),
            ("warp", "mcpServers", "", ""),
        ] {
            let head = format!("{{\n  \"{servers}\": {{\n    \"fabric\": {{\n      {kind}");
            for (set, key) in [(None, key), (Some(""), "")] {
                let found = client(name).config("/opt/f", &program(set));
                assert_eq!(found, format!("{head}{}", rest(key)), "{name}");
            }
        }
    }

    #[test]
    fn over_http_each_has_its_own_keys_and_refers_to_the_token() {
        let (claude, code) = ("${FABRIC_MCP_AUTH_TOKEN}", "${env:FABRIC_MCP_AUTH_TOKEN}");
        let open = "{env:FABRIC_MCP_AUTH_TOKEN}";
        let typed = [r#""type": "http", "url""#, r#""type": "sse", "url""#];
        let cline = r#""type": "streamableHttp", "url""#;
        let zoo = r#""type": "streamable-http", "url""#;
        let [url, server, remote] = [r#""url""#, r#""serverUrl""#, r#""type": "remote", "url""#];
        for (name, [head, sse], token) in [
            ("claude-code", typed, claude),
            ("vscode", typed, code),
            ("cursor", [url; 2], code),
            ("zed", [url, ""], "YOUR_TOKEN"),
            ("windsurf", [server; 2], code),
            ("cline", [cline, typed[1]], code),
            ("continue", typed, "YOUR_TOKEN"),
            ("gemini-cli", [r#""httpUrl""#, url], claude),
            ("jetbrains", [url; 2], "YOUR_TOKEN"),
            ("copilot-cli", typed, claude),
            ("opencode", [remote; 2], open),
            ("zoo-code", [zoo, typed[1]], code),
            ("antigravity", [server; 2], "YOUR_TOKEN"),
            ("kiro", [url; 2], claude),
            ("amp", [url; 2], claude),
            ("lm-studio", [url, ""], "YOUR_TOKEN"),
            ("warp", [url; 2], "YOUR_TOKEN"),
        ] {
            for (is_sse, head) in [(false, head), (true, sse)] {
                if !head.is_empty() {
                    let entry =
                        client(name).entry("/opt/f", &at("https://mcp.example.com/x", is_sse));
                    let authorization = format!("{{\"Authorization\": \"Bearer {token}\"}}");
                    let expected = format!(
                        "{{{head}: \"https://mcp.example.com/x\", \"headers\": {authorization}}}"
                    );
                    assert_eq!(layout::text(&entry, None, ""), expected, "{name}");
                }
            }
        }
    }

    #[test]
    fn opencode_gets_one_list_of_words() {
        let entry = client("opencode").entry("/opt/f", &program(None));
        assert_eq!(
            layout::text(&entry, None, ""),
            "{\"type\": \"local\", \"command\": [\"/opt/f\", \"--max-runs\", \"3\"], \
             \"environment\": {\"FABRIC_BASE_URL\": \"http://f:1\", \"FABRIC_API_KEY\": \
             \"{env:FABRIC_API_KEY}\"}}"
        );
    }

    #[test]
    fn codex_gets_toml() {
        assert_eq!(
            client("codex").config("/opt/a \"b\"", &program(None)),
            "[mcp_servers.fabric]\ncommand = \"/opt/a \\\"b\\\"\"\nargs = [\"--max-runs\", \
             \"3\"]\nenv_vars = [\"FABRIC_API_KEY\"]\nenv = { FABRIC_BASE_URL = \"http://f:1\" }\n"
        );
        let demo = Launch::Program {
            args: vec!["--demo".into()],
            env: Vec::new(),
        };
        let expected = "[mcp_servers.fabric]\ncommand = \"/opt/f\"\nargs = [\"--demo\"]\n";
        assert_eq!(client("codex").config("/opt/f", &demo), expected);
        let expected = "[mcp_servers.fabric]\nurl = \
            \"https://mcp.example.com/mcp\"\nbearer_token_env_var = \"FABRIC_MCP_AUTH_TOKEN\"\n";
        assert_eq!(client("codex").config("/opt/f", &url()), expected);
    }

    #[test]
    fn goose_gets_yaml() {
        let expected = "extensions:\n  fabric:\n    enabled: true\n    name: fabric\n    timeout: 3600\n    type: stdio\n    cmd: \
             \"/opt/f\"\n    args: [\"--max-runs\", \"3\"]\n    description: \"Finds and runs Fabric's patterns\"\n    \
             env_keys: [\"FABRIC_API_KEY\"]\n    envs: { FABRIC_BASE_URL: \"http://f:1\" }\n";
        assert_eq!(client("goose").config("/opt/f", &program(None)), expected);
        let expected = "extensions:\n  fabric:\n    enabled: true\n    name: fabric\n    timeout: 3600\n    type: \
             streamable_http\n    uri: \"https://mcp.example.com/mcp\"\n    description: \"Finds and runs Fabric's \
             patterns\"\n    env_keys: [\"FABRIC_MCP_AUTH_TOKEN\"]\n    headers:\n      Authorization: \"Bearer \
             $FABRIC_MCP_AUTH_TOKEN\"\n";
        assert_eq!(client("goose").config("/opt/f", &url()), expected);
    }

    #[test]
    fn who_only_connects_gets_the_url_and_how_the_token_is_given() {
        let chat = client("librechat").config("/opt/f", &url());
        let end = "url: \"https://mcp.example.com/mcp\"\n    headers:\n      Authorization: \"Bearer ${FABRIC_MCP_AUTH_TOKEN}\"\n    timeout: 300000\n";
        assert!(chat.ends_with(end), "{chat}");
    }

    /// A client, how it adds a program, and how a URL.
    const COMMANDS: &str = r#"claude-code
claude mcp add --env FABRIC_BASE_URL=http://f:1 --env 'FABRIC_API_KEY=${FABRIC_API_KEY}' --scope user fabric -- '/opt/it'\''s' --max-runs 3
claude mcp add --transport http --scope user fabric https://m/mcp --header 'Authorization: Bearer ${FABRIC_MCP_AUTH_TOKEN}'
vscode
code --add-mcp '{"name": "fabric", "type": "stdio", "command": "/opt/it'\''s", "args": ["--max-runs", "3"], "env": {"FABRIC_BASE_URL": "http://f:1", "FABRIC_API_KEY": "${env:FABRIC_API_KEY}"}}'
code --add-mcp '{"name": "fabric", "type": "http", "url": "https://m/mcp", "headers": {"Authorization": "Bearer ${env:FABRIC_MCP_AUTH_TOKEN}"}}'
codex
codex mcp add fabric --env FABRIC_BASE_URL=http://f:1 -- '/opt/it'\''s' --max-runs 3
codex mcp add fabric --url https://m/mcp --bearer-token-env-var FABRIC_MCP_AUTH_TOKEN
gemini-cli
gemini mcp add --scope user --env FABRIC_BASE_URL=http://f:1 --env 'FABRIC_API_KEY=${FABRIC_API_KEY}' fabric '/opt/it'\''s' -- --max-runs 3
gemini mcp add --scope user --transport http --header 'Authorization: Bearer ${FABRIC_MCP_AUTH_TOKEN}' fabric https://m/mcp
copilot-cli
copilot mcp add --env FABRIC_BASE_URL=http://f:1 --env 'FABRIC_API_KEY=${FABRIC_API_KEY}' fabric -- '/opt/it'\''s' --max-runs 3
copilot mcp add --transport http --header 'Authorization: Bearer ${FABRIC_MCP_AUTH_TOKEN}' fabric https://m/mcp"#;

    #[test]
    fn each_command_is_that_of_the_clients_documentation() {
        let (start, unset, url) = (program(None), program(Some("")), at("https://m/mcp", false));
        let on = |name: &str, launch: &Launch| client(name).command("linux", "/opt/it's", launch);
        let rows = Vec::from_iter(COMMANDS.lines());
        for row in rows.chunks(3) {
            let [name, by_program, by_url] = row[..] else {
                panic!("{row:?}")
            };
            let start = if name == "codex" { &unset } else { &start };
            assert_eq!(on(name, start).as_deref(), Ok(by_program));
            assert_eq!(on(name, &url).as_deref(), Ok(by_url));
        }
        let sse = at("https://m/sse", true);
        for case in [
            "claude-code => claude mcp add --transport sse --scope user fabric https://m/sse --header ",
            r#"vscode => code --add-mcp '{"name": "fabric", "type": "sse", "url": "https://m/sse""#,
            "gemini-cli => gemini mcp add --scope user --transport sse --header ",
        ] {
            let (name, expected) = case.split_once(" => ").unwrap();
            let command = on(name, &sse).unwrap();
            assert!(command.starts_with(expected), "{command}");
        }
        assert!(on("codex", &start).unwrap_err().contains("FABRIC_API_KEY"));
    }

    #[test]
    fn where_no_token_is_needed_none_is_shown() {
        for client in crate::clients::CLIENTS {
            let launch = client.reaching("https://m/mcp".to_owned(), false, false);
            let all = launch.map(|launch| client.by_hand("linux", &launch).concat());
            let is_good = |all: &String| {
                let shown = ["Authorization", "--header", "TOKEN", "project"];
                all.contains("https://m/mcp") && !shown.iter().any(|word| all.contains(word))
            };
            let is_url = !client.urls.is_empty();
            assert_eq!(all.as_ref().map(is_good), is_url.then_some(true), "{all:?}");
        }
    }

    #[test]
    fn windows_quotes_differently() {
        assert_eq!(shell("\\\\a b\\", "windows"), "\"\\\\a b\\\\\"");
        assert_eq!(shell("C:\\f.exe", "windows"), "C:\\f.exe");
        assert_eq!(shell("{\"\\\\\"}", "windows"), r#""{\"\\\\\"}""#);
    }
}
