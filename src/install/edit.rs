//! Adds one member to a JSON text, or removes it, without changing any other byte.

use serde_json::Value;

use crate::clients::{Layout, Node, member};

use super::jsonc::{JsonSpan, Member};

/// The result of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Edit {
    /// Nothing to change.
    Same,
    /// Added; the new text.
    Added(String),
    /// Replaced; the new text and the old value.
    Replaced(String, Value),
    /// Removed; the new text and the old value.
    Removed(String, Value),
}

/// The value at `key`.`name`, if there is one.
pub(super) fn current(text: &str, key: &str, name: &str) -> Option<Value> {
    let find = |span: &JsonSpan, name: &str| {
        span.members()?
            .iter()
            .find(|member| member.key == name)
            .map(|m| m.value.value())
    };
    let root = JsonSpan::read(text).ok()??;
    let servers = root.members()?.iter().find(|member| member.key == key)?;
    find(&servers.value, name)
}

/// Sets `key`.`name` to `entry`.
///
/// # Errors
/// Why the text cannot be edited.
pub(super) fn put(text: &str, key: &str, name: &str, entry: &Node) -> Result<Edit, String> {
    let Some(root) = JsonSpan::read(text)? else {
        let file = Node::object([(key, Node::object([(name, entry.clone())]))]);
        let between = if text.is_empty() || text.ends_with(['\n', '\u{feff}']) {
            ""
        } else {
            "\n"
        };
        return Ok(Edit::Added(format!(
            "{text}{between}{}\n",
            file.text(&Layout::default(), "")
        )));
    };
    let layout = layout(text, &root);
    let members = root.members().ok_or("it does not hold an object")?;
    let Some(servers) = members.iter().find(|member| member.key == key) else {
        let object = Node::object([(name, entry.clone())]);
        return Ok(Edit::Added(insert(
            text, &root, members, key, &object, &layout,
        )));
    };
    let inner = servers
        .value
        .members()
        .ok_or_else(|| format!("its \"{key}\" is not an object"))?;
    let Some(own) = inner.iter().find(|member| member.key == name) else {
        return Ok(Edit::Added(insert(
            text,
            &servers.value,
            inner,
            name,
            entry,
            &layout,
        )));
    };
    let before = own.value.value();
    if before == entry.value() {
        return Ok(Edit::Same);
    }
    let value = entry.text(
        &line_layout(text, own.start, &layout),
        indent_of(text, own.start),
    );
    Ok(Edit::Replaced(
        spliced(text, own.value.start, own.value.end, &value),
        before,
    ))
}

/// Removes `key`.`name`.
///
/// # Errors
/// Why the text cannot be edited.
pub(super) fn take(text: &str, key: &str, name: &str) -> Result<Edit, String> {
    let Some(root) = JsonSpan::read(text)? else {
        return Ok(Edit::Same);
    };
    let members = root.members().ok_or("it does not hold an object")?;
    let Some(servers) = members.iter().find(|member| member.key == key) else {
        return Ok(Edit::Same);
    };
    let inner = servers
        .value
        .members()
        .ok_or_else(|| format!("its \"{key}\" is not an object"))?;
    let Some(at) = inner.iter().position(|member| member.key == name) else {
        return Ok(Edit::Same);
    };
    let removed = inner
        .get(at)
        .map(|own| own.value.value())
        .unwrap_or_default();
    Ok(Edit::Removed(
        without(text, &servers.value, inner, at),
        removed,
    ))
}

fn spliced(text: &str, start: usize, end: usize, new: &str) -> String {
    format!(
        "{}{new}{}",
        text.get(..start).unwrap_or_default(),
        text.get(end..).unwrap_or_default()
    )
}

/// The indentation of the line of `at`.
fn indent_of(text: &str, at: usize) -> &str {
    let before = text.get(..at).unwrap_or_default();
    let line = before
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .trim_start_matches('\u{feff}');
    line.get(..line.len() - line.trim_start_matches([' ', '\t']).len())
        .unwrap_or_default()
}

/// Whether only white space precedes `at` on its line.
fn begins_line(text: &str, at: usize) -> bool {
    let before = text
        .get(..at)
        .unwrap_or_default()
        .trim_end_matches([' ', '\t']);
    before.ends_with('\n')
}

/// The layout of the text, taken from its first member.
fn layout(text: &str, root: &JsonSpan) -> Layout {
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let object = text.get(root.start..root.end).unwrap_or_default();
    let first = root.members().and_then(<[Member]>::first);
    let unit = match first {
        Some(first) if begins_line(text, first.start) => {
            Some(indent_of(text, first.start).to_owned())
        }
        Some(_) if !object.contains('\n') => None,
        _ => Some("  ".to_owned()),
    };
    Layout {
        unit: unit.map(|unit| {
            if unit.is_empty() {
                "  ".to_owned()
            } else {
                unit
            }
        }),
        newline,
    }
}

/// The same layout, or all on one line if the member at `start` does not begin a line.
fn line_layout(text: &str, start: usize, layout: &Layout) -> Layout {
    match begins_line(text, start) {
        true => layout.clone(),
        false => Layout {
            unit: None,
            ..layout.clone()
        },
    }
}

/// Adds a member at the end of an object.
fn insert(
    text: &str,
    object: &JsonSpan,
    members: &[Member],
    name: &str,
    value: &Node,
    layout: &Layout,
) -> String {
    let close = object.end - 1;
    let body = text.get(..close).unwrap_or_default();
    let end = body.trim_end_matches([' ', '\t', '\r', '\n']).len();
    let outer = indent_of(text, object.start);
    let last = members.last();
    let Some(unit) = &layout.unit else {
        // All on one line. A trailing comma stays last.
        let value = member(name, &value.text(layout, ""));
        return match last {
            None => spliced(text, end, close, &value),
            Some(Member { comma: Some(_), .. }) => spliced(text, end, end, &format!(" {value},")),
            Some(_) => spliced(text, end, end, &format!(", {value}")),
        };
    };
    let indent = match members.first() {
        Some(first) if begins_line(text, first.start) => indent_of(text, first.start).to_owned(),
        _ => format!("{outer}{unit}"),
    };
    let comma_after = if last.is_some_and(|last| last.comma.is_some()) {
        ","
    } else {
        ""
    };
    let written = format!(
        "{}{indent}{}{comma_after}",
        layout.newline,
        member(name, &value.text(layout, &indent))
    );
    // A bracket on its own line stays there.
    let closing = if begins_line(text, close) && end < close {
        text.get(end..close).unwrap_or_default().to_owned()
    } else {
        format!("{}{outer}", layout.newline)
    };
    let text = spliced(text, end, close, &format!("{written}{closing}"));
    match last {
        Some(last) if last.comma.is_none() => spliced(&text, last.value.end, last.value.end, ","),
        _ => text,
    }
}

/// Removes the member at `at` with its line and the comma that would be left over.
fn without(text: &str, object: &JsonSpan, members: &[Member], at: usize) -> String {
    let Some(own) = members.get(at) else {
        return text.to_owned();
    };
    let before = text.get(..own.start).unwrap_or_default();
    let mut start = before.trim_end_matches([' ', '\t']).len();
    if let Some(line) = before
        .get(..start)
        .and_then(|before| before.strip_suffix('\n'))
    {
        start = line.strip_suffix('\r').unwrap_or(line).len();
    }
    let end = own.comma.map_or(own.value.end, |comma| comma + 1);
    let changed = spliced(text, start, end, "");
    if members.len() == 1 {
        // Empty again, as before anything was added.
        let close = object.end - 1 - (end - start);
        let inside = changed.get(object.start + 1..close).unwrap_or_default();
        return match inside.trim().is_empty() {
            true => spliced(&changed, object.start + 1, close, ""),
            false => changed,
        };
    }
    let previous = at
        .checked_sub(1)
        .and_then(|i| members.get(i))
        .and_then(|previous| previous.comma);
    match previous {
        Some(comma) if own.comma.is_none() => spliced(&changed, comma, comma + 1, ""),
        _ => changed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry() -> Node {
        Node::object([
            ("command", Node::text_of("/f")),
            ("args", Node::List(Vec::new())),
        ])
    }

    fn added(text: &str) -> String {
        match put(text, "servers", "fabric", &entry()) {
            Ok(Edit::Added(text)) => text,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    const FRESH: &str = "{\n  \"servers\": {\n    \"fabric\": {\n      \"command\": \"/f\",\n      \"args\": []\n    }\n  }\n}";

    #[test]
    fn an_empty_text_becomes_a_file() {
        assert_eq!(added(""), format!("{FRESH}\n"));
        assert_eq!(added("\n"), format!("\n{FRESH}\n"));
        assert_eq!(added("// mine"), format!("// mine\n{FRESH}\n"));
        assert_eq!(added("\u{feff}"), format!("\u{feff}{FRESH}\n"));
    }

    /// What is put in, and that taking it out gives the first text again.
    #[test]
    fn what_is_put_in_stands_as_the_rest_does_and_leaves_no_trace() {
        for (before, after) in [
            ("{}", FRESH.to_owned()),
            ("{\n  \"servers\": {}\n}\n", format!("{FRESH}\n")),
            (
                "{\n\t\"a\": 1, // one\n\t\"servers\": {\n\t\t// first\n\t\t\"x\": {} // last\n\t}\n}\n",
                "{\n\t\"a\": 1, // one\n\t\"servers\": {\n\t\t// first\n\t\t\"x\": {}, // last\n\t\t\"fabric\": \
                 {\n\t\t\t\"command\": \"/f\",\n\t\t\t\"args\": []\n\t\t}\n\t}\n}\n"
                    .to_owned(),
            ),
            (
                "{\r\n    \"servers\": {\r\n        \"x\": {},\r\n    },\r\n}\r\n",
                "{\r\n    \"servers\": {\r\n        \"x\": {},\r\n        \"fabric\": {\r\n            \"command\": \
                 \"/f\",\r\n            \"args\": []\r\n        },\r\n    },\r\n}\r\n"
                    .to_owned(),
            ),
            (
                "{\"a\":{},\"servers\":{\"x\":{}}}",
                "{\"a\":{},\"servers\":{\"x\":{}, \"fabric\": {\"command\": \"/f\", \"args\": []}}}".to_owned(),
            ),
            ("{\"servers\":{}}", "{\"servers\":{\"fabric\": {\"command\": \"/f\", \"args\": []}}}".to_owned()),
            (
                "{\"servers\":{\"x\":{},}}",
                "{\"servers\":{\"x\":{}, \"fabric\": {\"command\": \"/f\", \"args\": []},}}".to_owned(),
            ),
            (
                "{\n  \"servers\": {\n    \"x\": {}\n\n    /* end */\n  }\n}",
                "{\n  \"servers\": {\n    \"x\": {},\n\n    /* end */\n    \"fabric\": {\n      \"command\": \
                 \"/f\",\n      \"args\": []\n    }\n  }\n}"
                    .to_owned(),
            ),
        ] {
            assert_eq!(added(before), after);
            assert_eq!(put(&after, "servers", "fabric", &entry()), Ok(Edit::Same), "{after}");
            let left = match before {
                // The object of servers stays.
                "{}" => "{\n  \"servers\": {}\n}",
                other => other,
            };
            assert_eq!(take(&after, "servers", "fabric"), Ok(Edit::Removed(left.to_owned(), entry().value())));
        }
    }

    #[test]
    fn objects_on_a_line_within_a_file_of_several_are_opened() {
        assert_eq!(
            added("{\n  \"servers\": {\"x\": {}}\n}"),
            "{\n  \"servers\": {\"x\": {},\n    \"fabric\": {\n      \"command\": \"/f\",\n      \"args\": []\n    }\n  \
             }\n}"
        );
        assert_eq!(
            added("{\n  \"a\": 1\n}"),
            format!("{{\n  \"a\": 1,\n{}", FRESH.strip_prefix("{\n").unwrap())
        );
        // A comment where members would stand.
        assert_eq!(
            added("{ // none yet\n}"),
            format!("{{ // none yet\n{}", FRESH.strip_prefix("{\n").unwrap())
        );
    }

    #[test]
    fn another_entry_of_the_name_is_replaced_where_it_stands() {
        let text = "{\n  \"servers\": {\n    \"fabric\": {\"command\": \"old\"}, // mine\n    \"x\": {}\n  }\n}";
        let Ok(Edit::Replaced(after, before)) = put(text, "servers", "fabric", &entry()) else {
            panic!()
        };
        assert_eq!(
            after,
            "{\n  \"servers\": {\n    \"fabric\": {\n      \"command\": \"/f\",\n      \"args\": []\n    }, // mine\n    \
             \"x\": {}\n  }\n}"
        );
        assert_eq!(before, json!({"command": "old"}));
        let line = "{\"servers\": {\"fabric\": null}}";
        let Ok(Edit::Replaced(after, _)) = put(line, "servers", "fabric", &entry()) else {
            panic!()
        };
        assert_eq!(
            after,
            "{\"servers\": {\"fabric\": {\"command\": \"/f\", \"args\": []}}}"
        );
    }

    #[test]
    fn the_same_entry_in_another_order_is_the_same() {
        let text = "{\"servers\": {\"fabric\": {\"args\": [/* none */], \"command\": \"\\/f\",}}}";
        assert_eq!(put(text, "servers", "fabric", &entry()), Ok(Edit::Same));
    }

    #[test]
    fn one_of_several_is_taken_out_wherever_it_stands() {
        for (text, left) in [
            (
                "{\"servers\": {\"fabric\": 1, \"x\": 2}}",
                "{\"servers\": { \"x\": 2}}",
            ),
            (
                "{\"servers\": {\"x\": 2, \"fabric\": 1}}",
                "{\"servers\": {\"x\": 2}}",
            ),
            (
                "{\"servers\": {\"x\": 2, \"fabric\": 1,}}",
                "{\"servers\": {\"x\": 2,}}",
            ),
            (
                "{\"servers\": {\n  \"a\": 1,\n  \"fabric\": 1,\n  \"x\": 2\n}}",
                "{\"servers\": {\n  \"a\": 1,\n  \"x\": 2\n}}",
            ),
            (
                "{\"servers\": {\n  // kept\n  \"fabric\": 1\n}}",
                "{\"servers\": {\n  // kept\n}}",
            ),
        ] {
            assert_eq!(
                take(text, "servers", "fabric"),
                Ok(Edit::Removed(left.to_owned(), json!(1)))
            );
            JsonSpan::read(left).unwrap();
        }
        for without in [
            "",
            "{}",
            "{\"servers\": {}}",
            "{\"fabric\": 1}",
            "{\"x\": {\"fabric\": 1}}",
        ] {
            assert_eq!(take(without, "servers", "fabric"), Ok(Edit::Same));
        }
    }

    #[test]
    fn what_is_not_an_object_is_left_alone() {
        for (text, why) in [
            ("[]", "it does not hold an object"),
            ("5", "it does not hold an object"),
            ("{\"servers\": []}", "its \"servers\" is not an object"),
            ("{\"servers\": null}", "its \"servers\" is not an object"),
            (
                "{\"servers\": ",
                "line 1: a value is missing or cannot be read",
            ),
        ] {
            assert_eq!(
                put(text, "servers", "fabric", &entry()),
                Err(why.to_owned())
            );
            assert_eq!(take(text, "servers", "fabric"), Err(why.to_owned()));
        }
    }
}
