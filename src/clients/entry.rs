//! A server's entry in each client's format: the keys and their order are those of its documentation.

use crate::cli::flags::{API_KEY, AUTH_TOKEN};
use crate::cli::{Key, Launch, McpClient};

use super::node::quoted;
use super::{Layout, NAME, Node, TOKEN_PLACEHOLDER, facts};

/// Every key that [`entry`] writes for some client: a change of settings takes the others' out.
pub(crate) const KEYS: [&str; 9] = [
    "type",
    "source",
    "command",
    "args",
    "env",
    "url",
    "serverUrl",
    "httpUrl",
    "headers",
];

/// The entry for clients that take JSON.
pub(crate) fn entry(client: McpClient, program: &str, launch: &Launch) -> Node {
    match launch {
        Launch::Program { args, env, key } => {
            let kind = match client {
                McpClient::ClaudeCode | McpClient::Vscode => Some(("type", "stdio")),
                // Versions of 2025 ask for the source; later ones ignore it.
                McpClient::Zed => Some(("source", "custom")),
                _ => None,
            };
            let reference =
                (*key == Key::Set).then(|| (API_KEY.to_owned(), reference(client, API_KEY, "")));
            let variables = variables(env, *key)
                .chain(reference)
                .map(|(name, value)| (name, Node::text_of(value)));
            let kind = kind
                .into_iter()
                .map(|(name, value)| (name, Node::text_of(value)));
            let rest = [
                ("command", Node::text_of(program)),
                ("args", Node::List(args.clone())),
                ("env", Node::object(variables)),
            ];
            Node::object(kind.chain(rest))
        }
        Launch::Url(url) | Launch::Sse(url) => {
            let is_sse = matches!(launch, Launch::Sse(_));
            let kind = match client {
                McpClient::ClaudeCode
                | McpClient::Vscode
                | McpClient::Continue
                | McpClient::Cline
                    if is_sse =>
                {
                    Some("sse")
                }
                McpClient::ClaudeCode | McpClient::Vscode | McpClient::Continue => Some("http"),
                McpClient::Cline => Some("streamableHttp"),
                // The others tell by the answer, or by the name of the URL.
                _ => None,
            };
            let name = match client {
                McpClient::Windsurf => "serverUrl",
                McpClient::GeminiCli if !is_sse => "httpUrl",
                _ => "url",
            };
            let kind = kind.into_iter().map(|kind| ("type", Node::text_of(kind)));
            let rest = [
                (name, Node::text_of(url)),
                (
                    "headers",
                    Node::object([("Authorization", Node::text_of(authorization(client)))]),
                ),
            ];
            Node::object(kind.chain(rest))
        }
    }
}

/// The value of the header `Authorization`.
pub(super) fn authorization(client: McpClient) -> String {
    format!(
        "Bearer {}",
        reference(client, AUTH_TOKEN, TOKEN_PLACEHOLDER)
    )
}

/// The client's reference to a variable, or `otherwise` if it has none.
pub(super) fn reference(client: McpClient, variable: &str, otherwise: &str) -> String {
    match facts(client).reference {
        Some((before, after)) => format!("{before}{variable}{after}"),
        None => otherwise.to_owned(),
    }
}

/// The variables of an entry: with Fabric's key as an empty one to fill in, if it is not set here.
fn variables(env: &[(String, String)], key: Key) -> impl Iterator<Item = (String, String)> {
    let place = (key == Key::Unset).then(|| (API_KEY.to_owned(), String::new()));
    env.iter().cloned().chain(place)
}

fn list(items: &[String]) -> String {
    Node::List(items.to_vec()).text(&Layout::default(), "")
}

/// For Codex's `config.toml`.
pub(super) fn toml(program: &str, launch: &Launch) -> String {
    let table = format!("[mcp_servers.{NAME}]\n");
    match launch {
        // Codex has no HTTP+SSE: `Launch::for_client` refuses that.
        Launch::Url(url) | Launch::Sse(url) => {
            format!(
                "{table}url = {}\nbearer_token_env_var = {}\n",
                quoted(url),
                quoted(AUTH_TOKEN)
            )
        }
        Launch::Program { args, env, key } => {
            // Codex passes on only the variables named here.
            let forwarded = if *key == Key::Set {
                format!("env_vars = [{}]\n", quoted(API_KEY))
            } else {
                String::new()
            };
            let mut text = format!(
                "{table}command = {}\nargs = {}\n{forwarded}",
                quoted(program),
                list(args)
            );
            for (i, (name, value)) in variables(env, *key).enumerate() {
                let head = if i == 0 {
                    format!("\n[mcp_servers.{NAME}.env]\n")
                } else {
                    String::new()
                };
                text.push_str(&format!("{head}{name} = {}\n", quoted(&value)));
            }
            text
        }
    }
}

/// For Goose's `config.yaml`.
pub(super) fn yaml(program: &str, launch: &Launch) -> String {
    let (timeout, _) = McpClient::Goose.call_limit();
    let about = quoted("Finds and runs Fabric's patterns");
    let own = match launch {
        // Goose has no HTTP+SSE: `Launch::for_client` refuses that.
        Launch::Url(url) | Launch::Sse(url) => format!(
            "    type: streamable_http\n    uri: {}\n    description: {about}\n    env_keys: [{}]\n    headers:\n      \
             Authorization: {}\n",
            quoted(url),
            quoted(AUTH_TOKEN),
            quoted(&format!("Bearer ${AUTH_TOKEN}"))
        ),
        Launch::Program { args, env, key } => {
            let keys = if *key == Key::Set {
                quoted(API_KEY)
            } else {
                String::new()
            };
            let variables: String = variables(env, *key)
                .map(|(name, value)| format!("\n      {name}: {}", quoted(&value)))
                .collect();
            let variables = if variables.is_empty() {
                " {}".to_owned()
            } else {
                variables
            };
            format!(
                "    type: stdio\n    cmd: {}\n    args: {}\n    description: {about}\n    env_keys: [{keys}]\n    \
                 envs:{variables}\n",
                quoted(program),
                list(args)
            )
        }
    };
    format!(
        "extensions:\n  {NAME}:\n    enabled: true\n    name: {NAME}\n    timeout: {timeout}\n{own}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::config;

    fn program(key: Key) -> Launch {
        Launch::Program {
            args: vec!["--max-runs".into(), "3".into()],
            env: vec![("FABRIC_BASE_URL".into(), "http://f:1".into())],
            key,
        }
    }

    fn url() -> Launch {
        Launch::Url("https://mcp.example.com/mcp".into())
    }

    #[test]
    fn every_client_gets_its_own_shape() {
        let rest = |key: &str| {
            format!(
                "\"command\": \"/opt/f\",\n      \"args\": [\"--max-runs\", \"3\"],\n      \"env\": {{\n        \
                 \"FABRIC_BASE_URL\": \"http://f:1\",\n        \"FABRIC_API_KEY\": \"{key}\"\n      }}\n    }}\n  }}\n}}\n"
            )
        };
        for (client, head, key) in [
            (
                McpClient::ClaudeDesktop,
                "{\n  \"mcpServers\": {\n    \"fabric\": {\n      ",
                "",
            ),
            (
                McpClient::ClaudeCode,
                "{\n  \"mcpServers\": {\n    \"fabric\": {\n      \"type\": \"stdio\",\n      ",
                "${FABRIC_API_KEY}",
            ),
            (
                McpClient::Vscode,
                "{\n  \"servers\": {\n    \"fabric\": {\n      \"type\": \"stdio\",\n      ",
                "${env:FABRIC_API_KEY}",
            ),
            (
                McpClient::Cursor,
                "{\n  \"mcpServers\": {\n    \"fabric\": {\n      ",
                "${env:FABRIC_API_KEY}",
            ),
            (
                McpClient::Zed,
                "{\n  \"context_servers\": {\n    \"fabric\": {\n      \"source\": \"custom\",\n      ",
                "",
            ),
            (
                McpClient::Windsurf,
                "{\n  \"mcpServers\": {\n    \"fabric\": {\n      ",
                "${env:FABRIC_API_KEY}",
            ),
            (
                McpClient::Cline,
                "{\n  \"mcpServers\": {\n    \"fabric\": {\n      ",
                "${env:FABRIC_API_KEY}",
            ),
            (
                McpClient::Continue,
                "{\n  \"mcpServers\": {\n    \"fabric\": {\n      ",
                "",
            ),
            (
                McpClient::GeminiCli,
                "{\n  \"mcpServers\": {\n    \"fabric\": {\n      ",
                "${FABRIC_API_KEY}",
            ),
            (
                McpClient::JetBrains,
                "{\n  \"mcpServers\": {\n    \"fabric\": {\n      ",
                "",
            ),
        ] {
            assert_eq!(
                config(client, "/opt/f", &program(Key::Set)),
                format!("{head}{}", rest(key)),
                "{client:?}"
            );
            assert_eq!(
                config(client, "/opt/f", &program(Key::Unset)),
                format!("{head}{}", rest("")),
                "{client:?}"
            );
        }
    }

    #[test]
    fn over_http_each_has_its_own_keys_and_refers_to_the_token() {
        for (client, expected) in [
            (
                McpClient::ClaudeCode,
                r#""type": "http", "url": "URL", "headers": {"Authorization": "Bearer ${FABRIC_MCP_AUTH_TOKEN}"}"#,
            ),
            (
                McpClient::Vscode,
                r#""type": "http", "url": "URL", "headers": {"Authorization": "Bearer ${env:FABRIC_MCP_AUTH_TOKEN}"}"#,
            ),
            (
                McpClient::Cursor,
                r#""url": "URL", "headers": {"Authorization": "Bearer ${env:FABRIC_MCP_AUTH_TOKEN}"}"#,
            ),
            (
                McpClient::Zed,
                r#""url": "URL", "headers": {"Authorization": "Bearer YOUR_TOKEN"}"#,
            ),
            (
                McpClient::Windsurf,
                r#""serverUrl": "URL", "headers": {"Authorization": "Bearer ${env:FABRIC_MCP_AUTH_TOKEN}"}"#,
            ),
            (
                McpClient::Cline,
                r#""type": "streamableHttp", "url": "URL", "headers": {"Authorization": "Bearer ${env:FABRIC_MCP_AUTH_TOKEN}"}"#,
            ),
            (
                McpClient::Continue,
                r#""type": "http", "url": "URL", "headers": {"Authorization": "Bearer YOUR_TOKEN"}"#,
            ),
            (
                McpClient::GeminiCli,
                r#""httpUrl": "URL", "headers": {"Authorization": "Bearer ${FABRIC_MCP_AUTH_TOKEN}"}"#,
            ),
            (
                McpClient::JetBrains,
                r#""url": "URL", "headers": {"Authorization": "Bearer YOUR_TOKEN"}"#,
            ),
        ] {
            let line = Layout {
                unit: None,
                newline: "\n",
            };
            let text = entry(client, "/opt/f", &url()).text(&line, "");
            assert_eq!(
                text,
                format!(
                    "{{{}}}",
                    expected.replace("URL", "https://mcp.example.com/mcp")
                ),
                "{client:?}"
            );
        }
    }

    #[test]
    fn over_sse_the_kind_is_another() {
        for (client, expected) in [
            (McpClient::ClaudeCode, r#"{"type": "sse", "url": "U", "#),
            (McpClient::Vscode, r#"{"type": "sse", "url": "U", "#),
            (McpClient::Cursor, r#"{"url": "U", "#),
            (McpClient::Windsurf, r#"{"serverUrl": "U", "#),
            (McpClient::Cline, r#"{"type": "sse", "url": "U", "#),
            (McpClient::Continue, r#"{"type": "sse", "url": "U", "#),
            (McpClient::GeminiCli, r#"{"url": "U", "#),
            (McpClient::JetBrains, r#"{"url": "U", "#),
        ] {
            let line = Layout {
                unit: None,
                newline: "\n",
            };
            let text = entry(client, "/opt/f", &Launch::Sse("U".into())).text(&line, "");
            assert!(text.starts_with(expected), "{client:?}: {text}");
        }
    }

    #[test]
    fn codex_gets_toml() {
        assert_eq!(
            config(McpClient::Codex, "/opt/a \"b\"", &program(Key::Set)),
            "[mcp_servers.fabric]\ncommand = \"/opt/a \\\"b\\\"\"\nargs = [\"--max-runs\", \"3\"]\nenv_vars = \
             [\"FABRIC_API_KEY\"]\n\n[mcp_servers.fabric.env]\nFABRIC_BASE_URL = \"http://f:1\"\n"
        );
        let demo = Launch::Program {
            args: vec!["--demo".into()],
            env: Vec::new(),
            key: Key::Unused,
        };
        assert_eq!(
            config(McpClient::Codex, "/opt/f", &demo),
            "[mcp_servers.fabric]\ncommand = \"/opt/f\"\nargs = [\"--demo\"]\n"
        );
        assert_eq!(
            config(McpClient::Codex, "/opt/f", &url()),
            "[mcp_servers.fabric]\nurl = \"https://mcp.example.com/mcp\"\nbearer_token_env_var = \
             \"FABRIC_MCP_AUTH_TOKEN\"\n"
        );
    }

    #[test]
    fn goose_gets_yaml() {
        assert_eq!(
            config(McpClient::Goose, "/opt/f", &program(Key::Set)),
            "extensions:\n  fabric:\n    enabled: true\n    name: fabric\n    timeout: 3600\n    type: stdio\n    cmd: \
             \"/opt/f\"\n    args: [\"--max-runs\", \"3\"]\n    description: \"Finds and runs Fabric's patterns\"\n    \
             env_keys: [\"FABRIC_API_KEY\"]\n    envs:\n      FABRIC_BASE_URL: \"http://f:1\"\n"
        );
        assert_eq!(
            config(McpClient::Goose, "/opt/f", &url()),
            "extensions:\n  fabric:\n    enabled: true\n    name: fabric\n    timeout: 3600\n    type: \
             streamable_http\n    uri: \"https://mcp.example.com/mcp\"\n    description: \"Finds and runs Fabric's \
             patterns\"\n    env_keys: [\"FABRIC_MCP_AUTH_TOKEN\"]\n    headers:\n      Authorization: \"Bearer \
             $FABRIC_MCP_AUTH_TOKEN\"\n"
        );
    }
}
