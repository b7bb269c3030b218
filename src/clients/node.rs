//! JSON with the keys in the given order, unlike serde_json's.

use serde_json::{Map, Value, json};

/// An object, a list of strings, or a string; anything else as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// Members in order.
    Object(Vec<(String, Node)>),
    /// On one line.
    List(Vec<String>),
    /// A string.
    Text(String),
    /// On one line.
    Found(Value),
}

/// The layout of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// What one level is indented by; `None` for everything on one line.
    pub(crate) unit: Option<String>,
    /// What ends a line.
    pub(crate) newline: &'static str,
}

impl Default for Layout {
    fn default() -> Layout {
        Layout {
            unit: Some("  ".to_owned()),
            newline: "\n",
        }
    }
}

impl Node {
    /// An object of these members.
    pub(crate) fn object<K: Into<String>>(members: impl IntoIterator<Item = (K, Node)>) -> Node {
        Node::Object(
            members
                .into_iter()
                .map(|(key, value)| (key.into(), value))
                .collect(),
        )
    }

    /// A string.
    pub(crate) fn text_of(text: impl Into<String>) -> Node {
        Node::Text(text.into())
    }

    /// A member of an object.
    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Node> {
        match self {
            Node::Object(members) => members
                .iter_mut()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value),
            Node::List(_) | Node::Text(_) | Node::Found(_) => None,
        }
    }

    /// The text; `indent` stands before the line that it begins on.
    pub(crate) fn text(&self, layout: &Layout, indent: &str) -> String {
        match self {
            Node::Text(text) => quoted(text),
            Node::Found(value) => value.to_string(),
            Node::List(items) => {
                let items: Vec<String> = items.iter().map(|item| quoted(item)).collect();
                format!("[{}]", items.join(", "))
            }
            Node::Object(members) if members.is_empty() => "{}".to_owned(),
            Node::Object(members) => {
                let inner = format!("{indent}{}", layout.unit.as_deref().unwrap_or_default());
                let members: Vec<String> = members
                    .iter()
                    .map(|(key, value)| member(key, &value.text(layout, &inner)))
                    .collect();
                match layout.unit {
                    None => format!("{{{}}}", members.join(", ")),
                    Some(_) => {
                        let newline = layout.newline;
                        let between = format!(",{newline}{inner}");
                        format!(
                            "{{{newline}{inner}{}{newline}{indent}}}",
                            members.join(&between)
                        )
                    }
                }
            }
        }
    }

    /// The same, to be compared.
    pub(crate) fn value(&self) -> Value {
        match self {
            Node::Text(text) => json!(text),
            Node::Found(value) => value.clone(),
            Node::List(items) => json!(items),
            Node::Object(members) => Value::Object(
                members
                    .iter()
                    .map(|(key, value)| (key.clone(), value.value()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }
}

/// A member of an object, its value written already.
pub(crate) fn member(key: &str, value: &str) -> String {
    format!("{}: {value}", quoted(key))
}

/// A string in JSON, which is one in TOML and YAML as well.
pub(crate) fn quoted(text: &str) -> String {
    // TOML wants DEL escaped too.
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_order_and_the_layout_is_followed() {
        let node = Node::object([
            ("type", Node::text_of("stdio")),
            ("args", Node::List(vec!["--a".into(), "b \"c\"".into()])),
            (
                "env",
                Node::object([("B", Node::text_of("1")), ("A", Node::text_of("2"))]),
            ),
            ("none", Node::Object(Vec::new())),
        ]);
        let tabs = Layout {
            unit: Some("\t".into()),
            newline: "\r\n",
        };
        assert_eq!(
            node.text(&tabs, "\t"),
            "{\r\n\t\t\"type\": \"stdio\",\r\n\t\t\"args\": [\"--a\", \"b \\\"c\\\"\"],\r\n\t\t\"env\": {\r\n\t\t\t\"B\": \
             \"1\",\r\n\t\t\t\"A\": \"2\"\r\n\t\t},\r\n\t\t\"none\": {}\r\n\t}"
        );
        let line = Layout {
            unit: None,
            newline: "\n",
        };
        let text = node.text(&line, "");
        assert_eq!(
            text,
            r#"{"type": "stdio", "args": ["--a", "b \"c\""], "env": {"B": "1", "A": "2"}, "none": {}}"#
        );
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), node.value());
    }
}
