//! JSON as people write an entry: its keys in the usual order, a list on one line.

use serde_json::Value;

/// Every key of an entry and of its `env`, in this order; other keys follow.
const KEYS: &str = "type source command args env environment url serverUrl httpUrl headers \
    FABRIC_BASE_URL SSL_CERT_FILE FABRIC_API_KEY";

/// Whether `--install` writes a key of this name.
pub(super) fn is_key(name: &str) -> bool {
    KEYS.split(' ').any(|key| key == name)
}

/// The text, each level indented by `unit`, or all on one line without it. `line` is the line break and the indentation
/// before the line that the text begins on.
pub(super) fn text(value: &Value, unit: Option<&str>, line: &str) -> String {
    let members = match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(written).collect();
            return format!("[{}]", items.join(", "));
        }
        Value::Object(members) if !members.is_empty() => members,
        other => return written(other),
    };
    let first = KEYS.split(' ').filter_map(|key| members.get_key_value(key));
    let others = members.iter().filter(|(key, _)| !is_key(key));
    let members = first.chain(others);
    let inner = unit.map(|unit| format!("{line}{unit}"));
    let (inner, line) = (inner.as_deref(), inner.as_ref().map_or("", |_| line));
    let members = members.map(|(key, value)| member(key, &text(value, unit, inner.unwrap_or(""))));
    let between = format!(",{}", inner.unwrap_or(" "));
    let members = members.collect::<Vec<_>>().join(&between);
    format!("{{{}{members}{line}}}", inner.unwrap_or(""))
}

/// A member of an object, its value written already.
pub(super) fn member(key: &str, value: &str) -> String {
    format!("{}: {value}", quoted(key))
}

/// A string in JSON, which is one in TOML and YAML as well.
pub(crate) fn quoted(text: &str) -> String {
    written(&Value::from(text))
}

fn written(value: &Value) -> String {
    // What TOML or YAML cannot have as it is, or takes for a line break.
    let is_odd = |c: char| c.is_control() || "\u{2028}\u{2029}\u{feff}\u{fffe}\u{ffff}".contains(c);
    let escaped = |c: char| match is_odd(c) {
        true => format!("\\u{:04x}", u32::from(c)),
        false => c.to_string(),
    };
    value.to_string().chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_have_their_order_and_the_layout_is_followed() {
        let entry = json!({
            "type": "stdio",
            "args": ["--a", "b \"c\""],
            "env": {"FABRIC_API_KEY": "2", "FABRIC_BASE_URL": "1"},
            "none": {},
            "also": 1
        });
        assert_eq!(
            text(&entry, Some("\t"), "\n\t"),
            "{\n\t\t\"type\": \"stdio\",\n\t\t\"args\": [\"--a\", \"b \\\"c\\\"\"],\n\t\t\"env\": \
             {\n\t\t\t\"FABRIC_BASE_URL\": \"1\",\n\t\t\t\"FABRIC_API_KEY\": \
             \"2\"\n\t\t},\n\t\t\"also\": 1,\n\t\t\"none\": {}\n\t}"
        );
        assert_eq!(
            text(&entry, None, ""),
            r#"{"type": "stdio", "args": ["--a", "b \"c\""], "env": {"FABRIC_BASE_URL": "1", "FABRIC_API_KEY": "2"}, "also": 1, "none": {}}"#
        );
    }

    #[test]
    fn strings_are_quoted_for_json_toml_and_yaml() {
        assert_eq!(quoted("a: \"b\" \\ é漢🙂"), r#""a: \"b\" \\ é漢🙂""#);
        for hard in ["\n---\n", "\u{85}\u{2028}\u{feff}\u{7f}\u{0}", "#x: - y"] {
            let text = quoted(hard);
            assert_eq!(serde_json::from_str::<String>(&text).unwrap(), hard);
            let part = ['\n', '\u{85}', '\u{2028}', '\u{feff}', '\u{7f}'];
            assert!(!text.contains(part), "{text}");
        }
    }
}
