//! Checks before a paid run, and explanations after a failed one.
//!
//! A single run needs at most the lists that its names come from. A chain is checked as a whole, so that it does not
//! fail half-way for a reason that could be known.

use std::sync::Arc;
use std::time::Duration;

use crate::fabric::names::did_you_mean;
use crate::fabric::{
    Cause, Chat, Error, Kind, Models, Name, Names, lacks_nothing, not_found, template,
};
use crate::tools::list_contexts::no_folder;
use crate::tools::listed::{alike, no_strategy, not_listed, take, unless_cancelled};
use crate::tools::{Context, refused, within};

use super::place;

/// Longest wait for the list of models: Fabric may be asking every vendor.
const MODELS_TIME: Duration = Duration::from_secs(5);
/// The refusal of a run without an input.
const NO_INPUT: &str = "`input_text` is empty, so the model would make an input up: give the whole text as input_text, or \
                        input_from. If the pattern needs none, \"input_is_text\": true runs it. Nothing was run.";
/// A vendor that runs models which it does not list.
const UNLISTED_VENDOR: &str = "codex";

/// What a check has found: nothing, a warning or a fault.
type Checked = Result<Option<String>, Error>;

/// Checks all steps before the first is run, and returns warnings; `input` is that of the first, and `is_needed` if it must
/// not be empty.
pub(super) fn check(
    steps: &mut [Chat],
    input: &str,
    is_needed: bool,
    context: &Arc<Context>,
) -> Result<Vec<String>, Error> {
    let (fabric, wait) = (&context.backend.fabric, &context.wait());
    let mut found = Vec::new();
    // Old versions of Fabric ignore an unknown strategy silently.
    if steps.iter().any(|step| step.strategy.is_some())
        && let Some(all) = unless_cancelled(fabric.strategies(wait))?
    {
        let known = all.iter().flatten().map(|one| one.name.as_str()).collect();
        for (i, step) in steps.iter_mut().enumerate() {
            if let Some(name) = &mut step.strategy {
                let argument = format!("{}strategy_name", place(i));
                let why = |name: &str| no_strategy(name, all.as_deref());
                found.push(is_known(argument, "strategy", name, &known, why));
            }
        }
    }
    // Context and session belong to the first step. Fabric's error for a context would show a path of its host.
    if let Some(name) = &mut steps[0].context
        && let Some(all) = unless_cancelled(fabric.stored("contexts", wait))?
    {
        let why = |name: &str| match &all {
            Some(known) => not_listed("context", name, "", known),
            None => no_folder("contexts"),
        };
        let known = all.clone().unwrap_or_default();
        found.push(is_known(
            "context_name".to_owned(),
            "context",
            name,
            &known,
            why,
        ));
    }
    // Fabric starts a new session silently, but it may be a typing error.
    if let Some(name) = steps[0].session.as_ref().map(Name::as_str)
        && let Some(Some(known)) = unless_cancelled(fabric.stored("sessions", wait))?
        && !known.contains(name)
    {
        let hint = did_you_mean(name, &known);
        found.push(Ok(Some(format!(
            "Fabric had no session named \"{name}\", so this run began without earlier messages.{hint}"
        ))));
    }
    // With variables, the guard reads the pattern.
    if is_needed && steps[0].variables.is_empty() {
        found.push(needs_nothing(&steps[0], context));
    }
    match steps {
        [step] => found.push(known_variables(step, context)),
        _ => patterns(steps, input, context, &mut found)?,
    }
    models(steps, context, &mut found)?;
    let (mut warnings, mut faults) = (Vec::new(), Vec::new());
    for checked in found {
        match checked {
            Ok(warning) => warnings.extend(warning.filter(|said| !warnings.contains(said))),
            Err(fault) => faults.push(fault),
        }
    }
    Error::all(faults).map(|()| warnings)
}

/// Refuses an argument with a name that is not `known`, unless there is one that is alike: that is taken. `what` it would be.
fn is_known(
    argument: String,
    what: &str,
    name: &mut Name,
    known: &Names,
    why: impl FnOnce(&str) -> String,
) -> Checked {
    let taken = take(what, name, known);
    match known.contains(name.as_str()) {
        true => Ok(taken),
        false => Err(lacking(argument, &why(name.as_str()))),
    }
}

/// Refuses a run that has neither an input nor variables, by what the pattern needs.
fn needs_nothing(step: &Chat, context: &Arc<Context>) -> Checked {
    let read = context
        .backend
        .fabric
        .pattern(&step.pattern, &context.wait());
    match read.map(|pattern| pattern.variables()) {
        Ok(needed) if !needed.is_empty() => {
            lacks_nothing("variables", &step.pattern, &needed, &step.variables).map(|()| None)
        }
        // Old versions of Fabric do not return all patterns that they run.
        Err(error) if !matches!(error.kind, Kind::FabricInternal | Kind::ApiError) => Err(error),
        _ => Err(no_input()),
    }
}

/// The refusal of a run without an input.
pub(super) fn no_input() -> Error {
    refused(NO_INPUT).about("input_text")
}

/// Adds to the error of a step whether Fabric lacks a name in it.
pub(super) fn explain(step: &Chat, error: Error, context: &Arc<Context>) -> Error {
    // None is started only to explain.
    if context.backend.fabric.rests() {
        return error;
    }
    // The pattern may not exist; the names are read only after a failure.
    let mut error = context
        .backend
        .fabric
        .explain(&step.pattern, error, &context.wait());
    if !matches!(error.kind, Kind::FabricInternal | Kind::ApiError) || error.retry_after.is_some() {
        return error;
    }
    // Fabric's words in every language, with nothing after one or both.
    let lacks_default = ["Default Model = Default Vendor =", "Default Vendor = ."];
    if step.model.is_empty()
        && lacks_default
            .iter()
            .any(|words| error.detail.contains(words))
    {
        return Error::of(error.kind, Cause::NoDefaultModel, &[]);
    }
    // Fabric names one at a time.
    if let Err(lacking) = variables(step, context) {
        return lacking;
    }
    // Older versions of Fabric do not find a model in another case.
    let is_exact = |one: &str, other: &str| one == other;
    let models = listed_models(std::slice::from_ref(step), context);
    match models.map(|models| unknown_model(&models.unwrap_or_default(), step, is_exact)) {
        Err(stopped) => return stopped,
        Ok(Some((_, why))) => error.detail = format!("{} {why}", error.detail),
        Ok(None) => {}
    }
    error
}

/// Refuses a run without the variables of the cached pattern, once a fresh read confirms them.
fn known_variables(step: &Chat, context: &Arc<Context>) -> Checked {
    let latest = context.backend.catalog.latest();
    let cached = latest
        .as_ref()
        .and_then(|all| all.pattern(step.pattern.as_str()));
    let lacks = |name: &String| !step.variables.contains_key(name);
    match cached {
        Some(pattern) if pattern.variables.iter().any(lacks) => {
            variables(step, context).map(|()| None)
        }
        _ => Ok(None),
    }
}

/// Refuses a run without the variables of the pattern, if it can be read.
fn variables(step: &Chat, context: &Arc<Context>) -> Result<(), Error> {
    let fabric = &context.backend.fabric;
    let Some(read) = unless_cancelled(fabric.pattern(&step.pattern, &context.wait()))? else {
        return Ok(());
    };
    let (pattern, needed) = (&step.pattern, read.variables());
    lacks_nothing("variables", pattern, &needed, &step.variables)
}

/// Finds unknown patterns and missing variables of a chain.
fn patterns(
    steps: &[Chat],
    input: &str,
    context: &Arc<Context>,
    found: &mut Vec<Checked>,
) -> Result<(), Error> {
    let wait = &context.wait();
    let names = context.backend.catalog.names(Duration::ZERO, wait)?;
    for (i, step) in steps.iter().enumerate() {
        let (place, pattern) = (place(i), &step.pattern);
        if !names.contains(pattern.as_str()) {
            let mut error = not_found(pattern, &names);
            error.detail = format!("`{place}pattern_name`: {} Nothing was run.", error.detail);
            found.push(Err(error));
            continue;
        }
        let read = context.backend.fabric.pattern(pattern, wait)?;
        let argument = format!("{place}variables");
        let mut checked = lacks_nothing(&argument, pattern, &read.variables(), &step.variables);
        // Checked again with its input when the step is run.
        if checked.is_ok() && !step.variables.is_empty() {
            let input = if i == 0 { input } else { "" };
            checked = template::check(&read, &step.variables, input)
                .map_err(|error| within(&place, format!("{} Nothing was run.", error.detail)));
        }
        found.push(checked.map(|()| None));
    }
    Ok(())
}

/// Takes models of similar names, and finds unknown ones, and vendors, of a chain. Those of a single run are only looked up
/// where they are known already, or their name cannot be right: with a wrong one it fails without cost.
fn models(
    steps: &mut [Chat],
    context: &Arc<Context>,
    found: &mut Vec<Checked>,
) -> Result<(), Error> {
    let is_chain = steps.len() > 1;
    let models = match &*steps {
        [step] if !step.model.contains(' ') => context.backend.catalog.known_models(),
        _ => listed_models(steps, context)?,
    };
    let Some(models) = models else {
        let seconds = MODELS_TIME.as_secs();
        found.push(Ok(is_chain.then(|| {
            format!("Models and vendors were not checked before the run: Fabric did not list them within {seconds} s.")
        })));
        return Ok(());
    };
    let all = models.models.iter().map(String::as_str).collect();
    for (i, step) in steps.iter_mut().enumerate() {
        // The operator's spelling of an allowed one stays.
        let is_free = context.backend.policy.allowed_models.is_empty();
        if let Some((taken, said)) = alike("model", &step.model, &all).filter(|_| is_free) {
            step.model = taken;
            found.push(Ok(Some(said)));
        }
        if let Some((argument, why)) = unknown_model(&models, step, is_same).filter(|_| is_chain) {
            // A step without its own model uses the call's, which came first.
            let place = place(i);
            found.push(Err(lacking(format!("{place}{argument}"), &why)));
            break;
        }
    }
    Ok(())
}

/// The cached models if they have all that the steps name, else a fresh list; `None` if that takes too long or
/// fails.
fn listed_models(steps: &[Chat], context: &Arc<Context>) -> Result<Option<Arc<Models>>, Error> {
    let names_none = |step: &Chat| step.model.is_empty() && step.vendor.is_empty();
    if steps.iter().all(names_none) {
        return Ok(Some(Arc::default()));
    }
    let has = |models: &Models, step| unknown_model(models, step, is_same).is_none();
    let has_all = |models: &Arc<Models>| steps.iter().all(|step| has(models, step));
    let catalog = &context.backend.catalog;
    match catalog.known_models().filter(has_all) {
        None => unless_cancelled(catalog.models_within(MODELS_TIME, &context.wait()))
            .map(Option::flatten),
        known => Ok(known),
    }
}

/// Refuses an argument that names what Fabric lacks.
fn lacking(argument: String, why: &str) -> Error {
    refused(format!("`{argument}`: {why} Nothing was run.")).about(argument)
}

/// As Fabric compares the names of models and vendors.
fn is_same(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

/// The argument that names what Fabric lacks, and why. Fabric accepts `vendor/model`.
fn unknown_model(
    models: &Models,
    step: &Chat,
    is_it: fn(&str, &str) -> bool,
) -> Option<(&'static str, String)> {
    let (model, vendor) = (step.model.as_str(), step.vendor.as_str());
    let names = |names: &mut dyn Iterator<Item = &String>| names.map(String::as_str).collect();
    let all = models.models.iter();
    let all: Names = names(&mut all.chain(models.vendors.values().flatten()));
    // Fabric lists none while it is still asking the vendors.
    if all.is_empty() || vendor.eq_ignore_ascii_case(UNLISTED_VENDOR) {
        return None;
    }
    let mut vendors = models.vendors.iter();
    let (known, of) = match vendors.find(|(known, _)| is_it(known, vendor)) {
        Some((name, known)) => (names(&mut known.iter()), format!(" of the vendor {name}")),
        None if vendor.is_empty() => (all, String::new()),
        None => {
            let known = names(&mut models.vendors.keys());
            return Some(("vendor_name", not_listed("vendor", vendor, "", &known)));
        }
    };
    let prefix = model.split_once('/').filter(|_| vendor.is_empty());
    let is_known = model.is_empty()
        || known.iter().any(|known| is_it(known, model))
        || prefix
            .is_some_and(|(prefix, _)| models.vendors.keys().any(|known| is_same(known, prefix)));
    (!is_known).then(|| ("model_name", not_listed("model", model, &of, &known)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn models_are_known_as_fabric_knows_them() {
        let vendors = [
            ("OpenAI", vec!["gpt-x"]),
            ("Ollama", vec!["llama3:8b", "meta/x"]),
            ("Empty", vec![]),
        ];
        let vendors: BTreeMap<String, Vec<String>> = vendors
            .into_iter()
            .map(|(vendor, models)| {
                (
                    vendor.to_owned(),
                    models.into_iter().map(str::to_owned).collect(),
                )
            })
            .collect();
        let models = Models {
            models: vendors.values().flatten().cloned().collect(),
            vendors,
        };
        let unknown = |models: &Models, model: &str, vendor: &str| {
            let name = Name::parse("x", "p").unwrap();
            let step = Chat {
                model: model.into(),
                vendor: vendor.into(),
                ..Chat::new(name, "")
            };
            unknown_model(models, &step, is_same)
                .map(|(argument, why)| format!("{argument}: {why}"))
        };
        for (model, vendor) in [
            ("gpt-x", ""),
            ("GPT-X", ""),
            ("meta/x", ""),
            ("ollama/anything", ""),
            ("gpt-x", "openai"),
            ("", "OLLAMA"),
            ("", ""),
            ("anything", "Codex"),
        ] {
            assert_eq!(unknown(&models, model, vendor), None, "{model} {vendor}");
        }
        let ends = "fabric_list_models has them all.";
        let model_named = "model_name: Fabric has no model named";
        let vendor_named = "vendor_name: Fabric has no vendor named";
        let mine = format!("{model_named} \"gpt-y\". Did you mean \"gpt-x\"? ");
        let none = format!("{model_named} \"zzzzzzzz\". ");
        let near = format!("{vendor_named} \"opnai\". Did you mean \"OpenAI\"? ");
        let other = format!("{model_named} \"gpt-x\" of the vendor Ollama. ");
        for (model, vendor, why) in [
            ("gpt-y", "", mine),
            ("zzzzzzzz", "", none),
            ("gpt-x", "opnai", near),
            ("gpt-x", "ollama", other),
        ] {
            let found = unknown(&models, model, vendor);
            assert_eq!(found, Some(format!("{why}{ends}")));
        }
        assert_eq!(unknown(&Models::default(), "x", "y"), None, "not asked yet");
    }
}
