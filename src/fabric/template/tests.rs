use super::engine::{EngineRun, EngineVersion, Rendering, VERSIONS, apply};
use super::*;
use crate::fabric::names;

fn pattern(text: &str) -> Pattern {
    Pattern {
        name: "p".into(),
        system_prompt: text.into(),
        ..Pattern::default()
    }
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// The checks of a run, in their order.
pub(super) fn guard(
    text: &str,
    variables: &BTreeMap<String, String>,
    input: &str,
) -> Result<(), Error> {
    names::variables("variables", variables)?;
    if variables.is_empty() && !is_suspicious(input) {
        return Ok(());
    }
    check(&pattern(text), "variables", variables, input)
}

/// No plugin, no extension.
fn without_calls(
    version: EngineVersion,
    text: &str,
    variables: &BTreeMap<String, String>,
    input: &str,
) -> EngineRun {
    apply(version, text, variables, input, &mut |_, _| None)
}

const CALL: &str = "{{plugin:sys:env:NAME}}";

/// Pattern, variables, input, and what the error must name; `CALL` stands for [`CALL`]. Each was confirmed with at least
/// one real version.
const ATTACKS: &str = "\
{{{x}}} | x={input} | CALL | `variables.x`
{{{x}}} | x={__FABRIC_INPUT_SENTINEL_TOKEN__} | CALL | `variables.x`
{{{{x}}}} | x=input | CALL | The pattern p
{{{a}}{{b}}} | a=&b={input}} | CALL | `variables.a`
{{{{a}}{{b}}}} | a=plug&b=in:sys:env:NAME |  | The pattern p
{{{x}}} | x={plugin:sys:env:NAME} |  | `variables.x`
{{x}}{{y}} | x={&y={plugin:sys:env:NAME}} |  | `variables.x`
{{x}}{{y}} | x={{plugin:sys:&y=env:NAME}} |  | `variables.x`
{{plugin:sys:env:{{x}}}} | x=NAME |  | The pattern p
{{ext:a:b:{{x}}}} | x=; reboot |  | The pattern p
# No byte of the token is the caller's.
{{{x}}{plugin:sys:env:NAME}} | x= |  | `variables.x`
{{x}} | x={{x}} |  | `variables.x`
{{{x}}} | x={x} |  | `variables.x`
{{{x}}{{y}}} | x={x}&y=} |  | `variables.x`
# Found although Fabric fails later.
{{{x}}} {{y}} {{gone}} | x={y}&y= |  | `variables.x`
# The sentinel within values and across them.
{{x}} | x=a __FABRIC_INPUT_SENTINEL_TOKEN__ |  | `variables.x`
{{x}}{{y}} | x=__FABRIC_INPUT_&y=SENTINEL_TOKEN__ |  | `variables`
__FABRIC_INPUT_SENTINEL_TOKEN{{x}} | x=__ |  | `variables`
{{x}}{{input}} | x=__FABRIC_INPUT_SENTINEL_TOKEN |  | `variables`
{{input}}{{x}} | x=FABRIC_INPUT_SENTINEL_TOKEN__ |  | `variables`
# Braces of the pattern that belong to no token.
{{ a {{x}} b | x=y }} |  | `variables.x`
{{ext:a:b}} {{x}} }} | x=NAME |  | The pattern p
# The output of a call is unknown.
{{plugin:sys:env:A}}{{x}}}} | x=NAME |  | The pattern p
{{plugin:file:read:/a}} {{x}} | x=NAME}} |  | `variables.x` must not be empty or contain braces
{{ext:a:b}} {{x}} | x={input} |  | `variables.x` must not be empty or contain braces
{{{ext:a:b}} | x= |  | The pattern p
{{plugin:file:read:/a}}{{plugin:text:trim: }}} | x= |  | The pattern p
{{plugin:text:lower:A}}{{x}}{{x}}b}} | x={ |  | `variables.x`
{{{plugin:text:trim: }}{{x}} | x={a}} |  | The pattern p
{{plugin:file:read:/a}} |  | CALL | `input_text` must not contain `{{`
# Only the input.
{{{{input}}}} |  | CALL | The pattern p
{{{{{input}}}}} |  | {plugin:sys:env:NAME} | The pattern p
{{__FABRIC_INPUT_SENTINEL_TOKEN__}} |  | CALL | The pattern p
{{ext:a:b:{{input}}}} |  | CALL | The pattern p
{{plugin:sys:env:{{{{input}}}}}} | x= | NAME | The pattern p
";

/// The parts of a row: pattern, variables, input, and the rest.
fn parts(row: &str) -> Option<[&str; 4]> {
    let mut parts = row.split(" | ");
    let mut part = || parts.next().expect("four parts");
    (!row.starts_with('#')).then(|| [part(), part(), part(), part()])
}

fn checked([text, variables, input, _]: [&str; 4]) -> Result<(), Error> {
    let variables = variables.split('&').filter_map(|pair| pair.split_once('='));
    let variables: Vec<_> = variables.collect();
    guard(text, &map(&variables), &input.replace("CALL", CALL))
}

#[test]
fn every_known_attack_is_refused_and_says_what_to_do() {
    for attack in ATTACKS.lines().filter_map(parts) {
        let error = checked(attack).expect_err(attack[0]);
        assert_eq!(error.kind, Kind::InvalidRequest, "{attack:?}");
        assert!(error.detail.contains(attack[3]), "{attack:?}: {error}");
    }
}

/// As [`ATTACKS`]; the last part is the reason.
const HARMLESS: &str = r#"
{{x}}, {{y}}. {{input}} | x={"a": {"b": [1, {"c": {}}]}}&y=fn f() { g({}) } | CALL | no token touches another
{"data": {{x}}} | x=[1] |  | a brace beside a token is no call
{"data": {"is": "{{x}}"}} | x={"a": {"b": {}}} |  | the pattern is JSON itself
{ {{x}} } | x={"a": {"b": {}}} |  | a blank parts them
{{x}} }} | x=a { |  | nothing opens
{{x}}{{y}} | x=a&y=b | CALL | touching, without braces
{{{x}}} | x=plain | CALL | touching, without braces
{{{input}}} | x=a | CALL | the input comes last
{{input}} |  | {{{{input}}}} | the input comes last
 | unused={ |  | it stands nowhere
{{plugin:datetime:now}} {{x}} | x={"a": {"b": {}}} | CALL | its output is known
{{plugin:sys:user}}@{{plugin:sys:hostname}} {{x}} {{plugin:text:upper:a:b}} | x=}} | { | their output is known
{"is": "{{ext:a:b}}"} {{x}} {{plugin:file:read:/a}} | x=code | { } | unknown output, but no braces
__FABRIC_INPUT_SENTINEL_TOKEN__ {{x}} | x=__FABRIC_INPUT_ | { | a part of the sentinel
{{gone}} {{x}} | x={ |  | Fabric refuses it
{{x}} | x=_____FABRIC_INPUT_SENTINEL_TOKEN_ |  | nearly the sentinel
"#;

#[test]
fn harmless_combinations_pass() {
    for harmless in HARMLESS.trim_start_matches('\n').lines().filter_map(parts) {
        assert_eq!(checked(harmless), Ok(()), "{harmless:?}");
    }
}

#[test]
fn tokens_are_what_fabrics_expression_finds() {
    for (text, found) in [
        ("{{a}}", vec![(0, "a")]),
        ("{{{a}}}{{ b c }}", vec![(1, "a"), (7, " b c ")]),
        ("{{}} {{a} }} {{{}}} { {a}}", vec![]),
        ("{{a\n}}é{{b}}", vec![(0, "a\n"), (8, "b")]),
        ("{{a{{b}}c}}", vec![(3, "b")]),
    ] {
        assert_eq!(tokens(text).collect::<Vec<_>>(), found, "{text}");
    }
}

/// The longest text that passes, and one byte more.
#[test]
fn the_whole_text_counts_and_the_input_wherever_it_would_stand() {
    let kib = |n: usize| "x".repeat(n << 10);
    let x = map(&[("x", &kib(64))]);
    let just = format!("{}{{{{input}}}}", "{{x}}".repeat(127));
    assert_eq!(guard(&just, &x, &kib(64)), Ok(()));
    let error = guard(&just, &x, &(kib(64) + "x")).unwrap_err();
    let part = "pattern p becomes longer than 8 MiB";
    assert!(error.detail.contains(part), "{error}");
    let error = guard(&"{{x}}".repeat(129), &x, "").unwrap_err();
    assert!(error.detail.contains("8 MiB"), "{error}");
    // Every way to place the input, including the sentinel in a pattern.
    for place in ["{{input}}", SENTINEL] {
        let found = guard(&place.repeat(2), &map(&[("y", "z")]), &kib(1024));
        assert_eq!(found, Ok(()), "{place}");
        let is_so = guard(&place.repeat(9), &map(&[("y", "z")]), &kib(1024)).is_err();
        assert!(is_so, "{place}");
        // Without variables the size is the pattern's own.
        let found = guard(&place.repeat(9), &map(&[]), &("{".to_owned() + &kib(1024)));
        assert_eq!(found, Ok(()), "{place}");
    }
    // Appended after a line break: one byte.
    let rest = MAX_MESSAGE - 100;
    let found = guard(&"y".repeat(99), &map(&[("y", "")]), &"x".repeat(rest));
    assert_eq!(found, Ok(()));
    assert!(guard(&"y".repeat(100), &map(&[("y", "")]), &"x".repeat(rest)).is_err());
    assert_eq!(
        guard(
            &("y".repeat(99) + "\n"),
            &map(&[("y", "")]),
            &"x".repeat(rest)
        ),
        Ok(())
    );
    assert!(guard(&"y".repeat(MAX_MESSAGE), &map(&[("y", "")]), "").is_err());
    // A token that stays counts with its own length.
    let text = format!("{{{{n}}}}{}", "y".repeat(93));
    let shown = guard(&text, &map(&[("y", "")]), &"x".repeat(rest));
    assert_eq!(shown, Ok(()));
    assert!(
        guard(
            &format!("{{{{n}}}}{}", "y".repeat(95)),
            &map(&[("y", "")]),
            &"x".repeat(rest)
        )
        .is_err()
    );
}

#[test]
fn foreign_names_are_shortened_in_errors() {
    let named = Pattern {
        name: "a\n".repeat(999),
        system_prompt: "{{{x}}}".into(),
        ..Pattern::default()
    };
    let error = check(&named, "variables", &map(&[("x", "{\u{7}}")]), "").unwrap_err();
    let is_so = error
        .detail
        .contains(&format!("pattern {}: ", "a".repeat(128)));
    assert!(is_so, "{error}");
    let error = guard("{{{a\u{85}}}}", &map(&[("a\u{85}", "{b}")]), "").unwrap_err();
    assert!(error.detail.contains(r"`variables.a\u{85}`"), "{error}");
}

/// SplitMix64, as in the integration tests.
pub(super) struct Rng(pub(super) u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn one<'a>(&mut self, parts: &'a str) -> &'a str {
        let count = parts.split('|').count();
        parts.split('|').nth(self.below(count)).unwrap_or_default()
    }

    /// Up to `most` of the parts, which are separated by `|`.
    fn some(&mut self, parts: &str, most: usize) -> String {
        (0..self.below(most + 1)).map(|_| self.one(parts)).collect()
    }
}

/// A pattern, variables and input.
pub(super) type Case = (String, BTreeMap<String, String>, String);

/// A hostile one.
pub(super) fn hostile(seed: u64) -> Case {
    const TEXT: &str = "\
        {{x}}|{{y}}|{{{x}}}|{{{{x}}}}|{{{x}}{{y}}}|{{{{y}}{{x}}}}|{{{x}}|{{y}}}}|\
        {{{y}}{{x}}}|{{input}}|{|}|{{|}}|text |\n|x|plugin:text:upper:|__FABRIC_INPUT_|\
        {{{{input}}}}";
    const CALLS: &str = "\
        {{plugin:text:upper:y}}|{{plugin:text:lower:INPUT}}|{{plugin:sys:env:NONE}}|\
        {{plugin:sys:env:OPENS}}|{{plugin:sys:env:CLOSES}}|{{plugin:sys:env:READS}}|\
        __FABRIC_INPUT_SENTINEL_TOKEN__|{{gone}}|{{ext:a:b:c}}";
    const VALUE: &str = "\
        |{|}|}}|x|y|input|{x}|{input}|{x|y}|plug|in:text:upper:a|{plugin:text:upper:a}|\
        plugin:text:upper:a| |__FABRIC_INPUT_|SENTINEL_TOKEN__|{\"a\": {}}";
    let rng = &mut Rng(seed);
    let mut text = String::new();
    for _ in 0..1 + rng.below(3) {
        text += &rng.some(TEXT, 3);
        // Missing variables end many runs early, so only some patterns have any.
        if rng.below(6) == 0 {
            text += &rng.some(CALLS, 1);
        }
    }
    let mut variables = BTreeMap::new();
    if rng.below(10) > 0 {
        for name in ["x", "y"] {
            variables.insert(name.to_owned(), rng.some(VALUE, 2));
        }
    }
    let mut input = rng.some(VALUE, 3);
    if rng.below(3) == 0 {
        input += "{{plugin:text:upper:i}}";
    }
    (text, variables, input)
}

/// Any output that a call on a host may have, except calls with a placeholder for the caller's text, calls split over
/// two outputs, and braces around the input.
fn given(
    rng: &mut Rng,
    opens: bool,
    plugin: bool,
    [namespace, operation, value]: [&str; 3],
) -> Option<String> {
    match (plugin, namespace, operation) {
        (true, "text", "upper") if !value.is_empty() => Some(value.to_uppercase()),
        (true, "text", "lower") if !value.is_empty() => Some(value.to_lowercase()),
        (true, "text", _) => None,
        _ if opens => {
            Some(rng.some("host|{x|{| ", 2) + &rng.some("{{plugin:text:upper:|{{x|{{{", 1))
        }
        _ => Some(rng.some("host|}}|}|x}}|{{{x}}}|{{y}} |{ {{input}} }", 3)),
    }
}

#[test]
fn accepted_requests_run_only_the_pattern() {
    only_the_pattern_runs(30_000);
}

/// Panics if the guard admits anything harmful.
pub(super) fn only_the_pattern_runs(cases: u64) {
    let (mut admitted, mut harmful, mut overdone) = (0, 0, 0);
    for seed in 0..cases {
        let (text, variables, input) = hostile(seed);
        if variables.is_empty() && !is_suspicious(&input) {
            // Not checked before a run either: harmful only in a pattern that puts braces around its input.
            continue;
        }
        let verdict = guard(&text, &variables, &input);
        let mut is_harmful = false;
        for version in VERSIONS {
            let (mut rng, opens) = (Rng(!seed), seed % 2 == 0);
            let mut calls = |plugin: bool, parts: [&str; 3]| given(&mut rng, opens, plugin, parts);
            let run = apply(version, &text, &variables, &input, &mut calls);
            let is_bad = !run.foreign.is_empty()
                || run.glued > 0
                || matches!(run.outcome, Rendering::Endless | Rendering::TooLong);
            is_harmful |= is_bad;
            if verdict.is_ok() {
                let told =
                    format!("seed {seed}, {version:?}: {text:?} with {variables:?} on {input:?}");
                assert!(
                    !is_bad,
                    "{told}: {:?}, {:?}, {}",
                    run.outcome, run.foreign, run.glued
                );
            }
        }
        admitted += usize::from(verdict.is_ok());
        harmful += usize::from(is_harmful);
        overdone += usize::from(!is_harmful && verdict.is_err());
    }
    println!(
        "{cases} hostile cases: {harmful} harmful, {admitted} let through, {overdone} refused for less"
    );
    let is_so = admitted > 3_000 && harmful > 5_000;
    assert!(is_so, "the generator has become one-sided");
}

/// For a plain pattern, one pass of replacement gives the bytes that Fabric's rounds give.
#[test]
fn a_plain_pattern_is_rendered_as_fabric_renders_it() {
    let (mut rendered_cases, mut refused) = (0, 0);
    for seed in 0..30_000 {
        let (text, variables, input) = hostile(seed);
        let told = format!("seed {seed}: {text:?} with {variables:?} on {input:?}");
        let here = rendered("p", &text, &variables, &input);
        if !is_plain(&text) {
            let error = here.unwrap_err();
            assert!(error.detail.contains("only Fabric can run"), "{told}");
            refused += 1;
        } else if guard(&text, &variables, &input).is_ok() {
            let here = here.map_or(Rendering::Failed, Rendering::Done);
            for version in VERSIONS {
                let fabric = without_calls(version, &text, &variables, &input);
                assert_eq!(here, fabric.outcome, "{version:?}, {told}");
            }
            rendered_cases += 1;
        }
    }
    println!("{rendered_cases} rendered, {refused} not plain");
    assert!(rendered_cases > 1_000 && refused > 1_000);
}

#[test]
fn a_rendered_pattern_has_a_limit_and_needs_its_variables() {
    let none = map(&[]);
    let text = "{{input}}".repeat(4);
    let long = "x".repeat(MAX_MESSAGE / 4);
    assert!(rendered("p", &text, &none, &long).is_ok());
    let error = rendered("p", &text, &none, &(long + "y")).unwrap_err();
    assert!(error.detail.contains("8 MiB"), "{error}");
    let error = rendered("p", "Say {{x}}.", &none, "").unwrap_err();
    assert_eq!(error.detail, "missing required variable: x");
}

/// Ordinary values and input in plain patterns.
#[test]
fn ordinary_texts_and_values_pass() {
    const TEXT: &str = "\
        You translate into {{x}}.\n|# STEPS\n\n- Read {{input}} twice.\n|\
        {\"lang\": \"{{x}}\", \"n\": 1}\n|Say {{y}} to {{x}}; |\
        fn main() { println!(\"{}\", x); }\n|\\textbf{bold} |${HOME} |{ {{y}} }\n|\
        {\"data\": {\"is\": \"{{y}}\"}}\n|<b>{{x}}</b>|Today is {{plugin:datetime:today}}. |\
        {{plugin:text:upper:a}} |`{{ x }}`|INPUT:\n\n{{input}}\n|{%if%} ";
    const VALUE: &str = "\
        de|a longer text, with a comma||if (a) { b() } else { c() }|\
        {\"a\": {\"b\": [{\"c\": {}}]}}|{}|\\frac{1}{2}|f\"{x}\"|}|${x}|plugin:|input|\
        x: {y: {z: 1}}|漢字|__init__";
    let (mut refused, cases) = (Vec::new(), 10_000);
    let rng = &mut Rng(7);
    for _ in 0..cases {
        let text = rng.some(TEXT, 8);
        let variables = map(&[
            ("x", rng.one(VALUE)),
            ("y", rng.one(VALUE)),
            (" x ", rng.one(VALUE)),
        ]);
        if let Err(error) = guard(&text, &variables, "{{ jinja }} { code }") {
            refused.push(format!("{text:?} with {variables:?}: {error}"));
        }
    }
    println!("{cases} ordinary cases: {} refused", refused.len());
    assert!(refused.is_empty(), "{}", refused[0]);
}

#[test]
fn the_model_agrees_with_output_of_real_engines() {
    let none = map(&[]);
    let done = |text: &str| Rendering::Done(text.to_owned());
    let x = |value| map(&[("x", value)]);
    let (failed, endless) = (Rendering::Failed, Rendering::Endless);
    for (text, variables, input, old, new) in [
        ("a", &none, "{{in}}", done("a\n{{in}}"), done("a\n{{in}}")),
        ("{{{input}}}", &none, "{b}", done("{{b}}"), done("{{b}}")),
        ("{{{{input}}}}", &none, "b", failed.clone(), done("b")),
        ("{{{x}}}", &x("{input}"), "b", done("\nb"), done("b\nb")),
        ("{{{x}}}", &x("{x}"), "", done("{x}\n"), done("{x}\n")),
        ("{{x}}", &x("{{x}}"), "", endless.clone(), endless),
        ("{{gone}}", &none, "", failed.clone(), failed),
    ] {
        let found = without_calls(EngineVersion::V300, text, variables, input).outcome;
        assert_eq!(found, old, "{text}");
        let found = without_calls(EngineVersion::V470, text, variables, input).outcome;
        assert_eq!(found, new, "{text}");
    }
}

#[test]
fn a_long_expansion_ends_at_the_limit() {
    // A pattern of 2.4 MB that expands to 26 GB.
    let error = guard(
        &"{{x}} ".repeat(400_000),
        &map(&[("x", &"_{".repeat(32 << 10))]),
        "",
    );
    let detail = error.unwrap_err().detail;
    assert!(detail.contains("8 MiB") && detail.len() < 300, "{detail}");
}
