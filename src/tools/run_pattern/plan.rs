//! Checks before a paid run, and explanations after a failed one.
//!
//! A single run needs at most the lists that its names come from. A chain is checked as a whole, so that it does not
//! fail half-way for a reason that could be known.

use std::sync::Arc;
use std::time::Duration;

use crate::fabric::names::{did_you_mean, in_quotes};
use crate::fabric::{
    Cause, Chat, Error, Kind, Models, Name, Names, lacks_nothing, not_found, template,
};
use crate::text::shown;
use crate::tools::list_contexts::no_folder;
use crate::tools::{Context, refused};

use super::place;

/// Longest wait for the list of models: Fabric may be asking every vendor.
const MODELS_TIME: Duration = Duration::from_secs(5);
/// A vendor that runs models which it does not list.
const UNLISTED_VENDOR: &str = "codex";

/// Checks all steps before the first is run, and returns warnings; `input` is that of the first.
pub(super) fn check(
    steps: &[Chat],
    input: &str,
    context: &Arc<Context>,
) -> Result<Vec<String>, Error> {
    let mut warnings = Vec::new();
    strategies(steps, context)?;
    for step in steps {
        stored_context(step, context)?;
        warnings.extend(session(step, context)?);
    }
    // A single run with a wrong model fails without cost, so models are checked only after it failed.
    if let [step] = steps {
        known_variables(step, context)?;
    } else {
        patterns(steps, input, context)?;
        warnings.extend(models(steps, context)?);
    }
    Ok(warnings)
}

/// Adds to the error of a step whether Fabric lacks a name in it.
pub(super) fn explain(step: &Chat, error: Error, context: &Arc<Context>) -> Error {
    if error.kind == Kind::Cancelled {
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
    // Fabric names one at a time.
    if let Err(lacking) = variables(step, context) {
        return lacking;
    }
    let steps = std::slice::from_ref(step);
    if names_a_model(steps) {
        match listed_models(steps, context) {
            Err(stopped) => return stopped,
            Ok(Some(models)) => {
                let why = unknown_model(&models, step).map(|(_, why)| why);
                if let Some(why) = why.or_else(|| other_case(&models, step)) {
                    error.detail = format!("{why} {}", error.detail);
                }
            }
            Ok(None) => {}
        }
    }
    error
}

/// Refuses an unknown strategy: old versions of Fabric ignore it silently.
fn strategies(steps: &[Chat], context: &Arc<Context>) -> Result<(), Error> {
    if steps.iter().all(|step| step.strategy.is_none()) {
        return Ok(());
    }
    let read = context.backend.fabric.strategies(&context.wait());
    let Some(all) = unless_cancelled(read)? else {
        return Ok(());
    };
    let known: Option<Names> =
        all.map(|all| all.iter().map(|strategy| strategy.name.as_str()).collect());
    for (i, step) in steps.iter().enumerate() {
        if let Some(name) = &step.strategy {
            let argument = format!("{}strategy_name", place(i));
            let words = ("strategy", "fabric_list_strategies");
            is_known(&argument, words, name, known.as_ref(), || {
                Cause::NoStrategies.to_string()
            })?;
        }
    }
    Ok(())
}

/// Refuses an unknown context: Fabric's error would show a path of its host.
fn stored_context(step: &Chat, context: &Arc<Context>) -> Result<(), Error> {
    let (Some(name), contexts) = (&step.context, "contexts") else {
        return Ok(());
    };
    let read = context.backend.fabric.stored(contexts, &context.wait());
    let Some(known) = unless_cancelled(read)? else {
        return Ok(());
    };
    let words = ("context", "fabric_list_contexts");
    is_known("context_name", words, name, known.as_ref(), || {
        no_folder(contexts)
    })
}

/// Warns of a new session, which Fabric starts silently: it may be a typing error.
fn session(step: &Chat, context: &Arc<Context>) -> Result<Option<String>, Error> {
    let Some(name) = &step.session else {
        return Ok(None);
    };
    let read = context.backend.fabric.stored("sessions", &context.wait());
    let known = unless_cancelled(read)?.flatten();
    let name = name.as_str();
    Ok(known.filter(|names| !names.contains(name)).map(|names| {
        let hint = did_you_mean(name, &names);
        format!("Fabric had no session named \"{name}\", so this run began without earlier messages.{hint}")
    }))
}

/// Refuses a run without the variables of the cached pattern, once a fresh read confirms them.
fn known_variables(step: &Chat, context: &Arc<Context>) -> Result<(), Error> {
    let latest = context.backend.catalog.latest();
    let cached = latest
        .as_ref()
        .and_then(|all| all.pattern(step.pattern.as_str()));
    let lacks = |name: &String| !step.variables.contains_key(name);
    match cached {
        Some(pattern) if pattern.variables.iter().any(lacks) => variables(step, context),
        _ => Ok(()),
    }
}

/// Refuses a run without the variables of the pattern, if it can be read.
fn variables(step: &Chat, context: &Arc<Context>) -> Result<(), Error> {
    let fabric = &context.backend.fabric;
    match unless_cancelled(fabric.pattern(&step.pattern, &context.wait()))? {
        Some(pattern) => {
            let needed = pattern.variables();
            lacks_nothing("variables", &step.pattern, &needed, &step.variables)
        }
        None => Ok(()),
    }
}

/// Refuses unknown patterns and missing variables of a chain.
fn patterns(steps: &[Chat], input: &str, context: &Arc<Context>) -> Result<(), Error> {
    let names = context
        .backend
        .catalog
        .names(Duration::ZERO, &context.wait())?;
    for (i, step) in steps.iter().enumerate() {
        let (
            place,
            Chat {
                pattern, variables, ..
            },
        ) = (place(i), step);
        if !names.contains(pattern.as_str()) {
            let mut error = not_found(pattern, &names);
            error.detail = format!("`{place}pattern_name`: {} Nothing was run.", error.detail);
            return Err(error);
        }
        let read = context.backend.fabric.pattern(pattern, &context.wait())?;
        let argument = format!("{place}variables");
        lacks_nothing(&argument, pattern, &read.variables(), variables)?;
        // Checked again with its input when the step is run.
        if !variables.is_empty() {
            let input = if i == 0 { input } else { "" };
            template::check(&read, variables, input).map_err(|error| {
                let place = match place.trim_end_matches('.') {
                    "" => String::new(),
                    place => format!("In {place}: "),
                };
                refused(format!("{place}{} Nothing was run.", error.detail))
            })?;
        }
    }
    Ok(())
}

/// Refuses unknown models and vendors of a chain.
fn models(steps: &[Chat], context: &Arc<Context>) -> Result<Option<String>, Error> {
    if !names_a_model(steps) {
        return Ok(None);
    }
    let Some(models) = listed_models(steps, context)? else {
        let seconds = MODELS_TIME.as_secs();
        return Ok(Some(format!(
            "Models and vendors were not checked before the run: Fabric did not list them within {seconds} s."
        )));
    };
    let of = |step: &Chat| (step.model.clone(), step.vendor.clone());
    for (i, step) in steps.iter().enumerate() {
        if let Some((argument, why)) = unknown_model(&models, step) {
            // A step without its own model uses the call's.
            let is_own = of(step) != of(&steps[0]);
            let place = place(if is_own { i } else { 0 });
            return Err(refused(format!(
                "`{place}{argument}`: {why} Nothing was run."
            )));
        }
    }
    Ok(None)
}

fn names_a_model(steps: &[Chat]) -> bool {
    let names_one = |step: &Chat| !(step.model.is_empty() && step.vendor.is_empty());
    steps.iter().any(names_one)
}

/// The cached models if they have all that the steps name, else a fresh list; `None` if that takes too long or
/// fails.
fn listed_models(steps: &[Chat], context: &Arc<Context>) -> Result<Option<Arc<Models>>, Error> {
    let has = |models: &Arc<Models>, step| unknown_model(models, step).is_none();
    let has_all = |models: &Arc<Models>| steps.iter().all(|step| has(models, step));
    match context.backend.catalog.known_models().filter(has_all) {
        Some(known) => Ok(Some(known)),
        None => {
            let read = context
                .backend
                .catalog
                .models_within(MODELS_TIME, &context.wait());
            unless_cancelled(read).map(Option::flatten)
        }
    }
}

/// Passes on only a cancellation: an unreadable list does not prevent the run.
fn unless_cancelled<T>(read: Result<T, Error>) -> Result<Option<T>, Error> {
    match read {
        Err(error) if error.kind == Kind::Cancelled => Err(error),
        read => Ok(read.ok()),
    }
}

/// Refuses the name of an `argument` that is not `known`. The words are what it names, and the tool that lists them.
fn is_known(
    argument: &str,
    (what, tool): (&str, &str),
    name: &Name,
    known: Option<&Names>,
    no_folder: impl FnOnce() -> String,
) -> Result<(), Error> {
    let name = name.as_str();
    let why = match known {
        Some(names) if names.contains(name) => return Ok(()),
        Some(names) => {
            let hint = did_you_mean(name, names);
            format!("Fabric has no {what} named \"{name}\".{hint} {tool} has them all.")
        }
        None => no_folder(),
    };
    Err(refused(format!("`{argument}`: {why} Nothing was run.")).about(argument))
}

/// The argument that names what Fabric lacks, and why. Fabric ignores case, and accepts `vendor/model`.
fn unknown_model(models: &Models, step: &Chat) -> Option<(&'static str, String)> {
    let is_same = |one: &str, other: &str| one.to_lowercase() == other.to_lowercase();
    let (model, vendor) = (step.model.as_str(), step.vendor.as_str());
    let is_empty = models.models.is_empty() && models.vendors.values().all(Vec::is_empty);
    // Fabric lists none while it is still asking the vendors.
    if is_empty || is_same(vendor, UNLISTED_VENDOR) {
        return None;
    }
    let of_vendor = |name: &str| {
        models
            .vendors
            .iter()
            .find(|(known, _)| is_same(known, name))
    };
    let missing = |what: &str, wanted: &str, of: String, names: Names| {
        let (shown, hint) = (shown(wanted, 128), did_you_mean(wanted, &names));
        format!(
            "Fabric has no {what} named \"{shown}\"{of}.{hint} fabric_list_models has them all."
        )
    };
    let (known, of): (Vec<&String>, _) = match of_vendor(vendor).filter(|_| !vendor.is_empty()) {
        Some((name, known)) => (known.iter().collect(), format!(" of the vendor {name}")),
        None if vendor.is_empty() => {
            let all = models
                .models
                .iter()
                .chain(models.vendors.values().flatten());
            (all.collect(), String::new())
        }
        None => {
            let names = models.vendors.keys().map(String::as_str).collect();
            return Some((
                "vendor_name",
                missing("vendor", vendor, String::new(), names),
            ));
        }
    };
    let prefix = model.split_once('/').filter(|_| vendor.is_empty());
    let is_known = model.is_empty()
        || known.iter().any(|known| is_same(known, model))
        || prefix.is_some_and(|(prefix, _)| of_vendor(prefix).is_some());
    let names = || known.iter().map(|name| name.as_str()).collect();
    (!is_known).then(|| ("model_name", missing("model", model, of, names())))
}

/// Names the model and vendor that Fabric lists in another case: its older versions do not find them.
fn other_case(models: &Models, step: &Chat) -> Option<String> {
    let listed = models.vendors.keys().chain(&models.models);
    let listed: Vec<&String> = listed.chain(models.vendors.values().flatten()).collect();
    let named = [&step.vendor, &step.model].into_iter();
    let misspelled = named.filter(|name| !listed.contains(name));
    let meant = misspelled.filter_map(|name| {
        let is_same = |known: &&&String| known.to_lowercase() == name.to_lowercase();
        Some(listed.iter().find(is_same)?.as_str())
    });
    let names = in_quotes(meant, "and");
    (!names.is_empty()).then(|| format!("Fabric lists {names}: write it in this case."))
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
            unknown_model(models, &step).map(|(argument, why)| format!("{argument}: {why}"))
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
