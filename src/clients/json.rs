//! JSON with the keys in the given order, unlike serde_json's.

use serde_json::{Map, Value};

/// An object whose order counts, or any other value, which is on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JsonNode {
    Object(Vec<(String, JsonNode)>),
    Value(Value),
}

impl<T: Into<Value>> From<T> for JsonNode {
    fn from(value: T) -> JsonNode {
        JsonNode::Value(value.into())
    }
}

impl JsonNode {
    pub(super) fn object<K: Into<String>>(
        members: impl IntoIterator<Item = (K, JsonNode)>,
    ) -> JsonNode {
        let members = members.into_iter();
        JsonNode::Object(members.map(|(key, value)| (key.into(), value)).collect())
    }

    /// A member of an object.
    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut JsonNode> {
        let JsonNode::Object(members) = self else {
            return None;
        };
        let found = members.iter_mut().find(|(key, _)| key == name);
        found.map(|(_, value)| value)
    }

    /// The text, each level indented by `unit`, or all on one line without it. `indent` stands before the line that the
    /// text begins on.
    pub(super) fn text(&self, unit: Option<&str>, indent: &str) -> String {
        let members = match self {
            JsonNode::Value(Value::Array(items)) => {
                let items: Vec<String> = items.iter().map(written).collect();
                return format!("[{}]", items.join(", "));
            }
            JsonNode::Value(value) => return written(value),
            JsonNode::Object(members) if members.is_empty() => return "{}".to_owned(),
            JsonNode::Object(members) => members,
        };
        let inner = format!("{indent}{}", unit.unwrap_or_default());
        let members = members.iter();
        let members = members.map(|(key, value)| member(key, &value.text(unit, &inner)));
        let members: Vec<String> = members.collect();
        match unit {
            None => format!("{{{}}}", members.join(", ")),
            Some(_) => {
                let members = members.join(&format!(",\n{inner}"));
                format!("{{\n{inner}{members}\n{indent}}}")
            }
        }
    }

    /// The value, to be compared.
    pub(super) fn value(&self) -> Value {
        match self {
            JsonNode::Value(value) => value.clone(),
            JsonNode::Object(members) => {
                let members = members.iter();
                let members = members.map(|(key, value)| (key.clone(), value.value()));
                Value::Object(members.collect::<Map<_, _>>())
            }
        }
    }
}

/// A member of an object, its value written already.
pub(super) fn member(key: &str, value: &str) -> String {
    format!("{}: {value}", quoted(key))
}

/// A string in JSON, which is one in TOML and YAML as well.
pub(super) fn quoted(text: &str) -> String {
    written(&Value::from(text))
}

fn written(value: &Value) -> String {
    // TOML wants DEL escaped too.
    value.to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_order_and_the_layout_is_followed() {
        let node = JsonNode::object([
            ("type", JsonNode::from("stdio")),
            ("args", JsonNode::from(vec!["--a", "b \"c\""])),
            (
                "env",
                JsonNode::object([("B", JsonNode::from("1")), ("A", JsonNode::from("2"))]),
            ),
            ("none", JsonNode::Object(Vec::new())),
        ]);
        assert_eq!(
            node.text(Some("\t"), "\t"),
            "{\n\t\t\"type\": \"stdio\",\n\t\t\"args\": [\"--a\", \"b \\\"c\\\"\"],\n\t\t\"env\": {\n\t\t\t\"B\": \
             \"1\",\n\t\t\t\"A\": \"2\"\n\t\t},\n\t\t\"none\": {}\n\t}"
        );
        let text = node.text(None, "");
        assert_eq!(
            text,
            r#"{"type": "stdio", "args": ["--a", "b \"c\""], "env": {"B": "1", "A": "2"}, "none": {}}"#
        );
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), node.value());
    }
}
