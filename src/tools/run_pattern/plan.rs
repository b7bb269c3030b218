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
use crate::tools::{Context, not_listed, refused, within};

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
    let (fabric, wait) = (&context.backend.fabric, &context.wait());
    let mut warnings = Vec::new();
    // Old versions of Fabric ignore an unknown strategy silently.
    if steps.iter().any(|step| step.strategy.is_some())
        && let Some(all) = unless_cancelled(fabric.strategies(wait))?
    {
        let known = all.map(|all| Names::from_iter(all.iter().map(|one| one.name.as_str())));
        for (i, step) in steps.iter().enumerate() {
            if let Some(name) = &step.strategy {
                let argument = format!("{}strategy_name", place(i));
                is_known(argument, "strategy", name, known.as_ref())?;
            }
        }
    }
    // Context and session belong to the first step. Fabric's error for a context would show a path of its host.
    if let Some(name) = &steps[0].context
        && let Some(known) = unless_cancelled(fabric.stored("contexts", wait))?
    {
        is_known("context_name".to_owned(), "context", name, known.as_ref())?;
    }
    // Fabric starts a new session silently, but it may be a typing error.
    if let Some(name) = steps[0].session.as_ref().map(Name::as_str)
        && let Some(Some(known)) = unless_cancelled(fabric.stored("sessions", wait))?
        && !known.contains(name)
    {
        let hint = did_you_mean(name, &known);
        warnings.push(format!(
            "Fabric had no session named \"{name}\", so this run began without earlier messages.{hint}"
        ));
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

/// Refuses an argument with a name that is not `known`. `what` it would be; Fabric may have no such list.
fn is_known(argument: String, what: &str, name: &Name, known: Option<&Names>) -> Result<(), Error> {
    let why = match known {
        Some(known) if known.contains(name.as_str()) => return Ok(()),
        Some(known) => not_listed(what, name.as_str(), "", known),
        None if what == "context" => no_folder("contexts"),
        None => Cause::NoStrategies.to_string(),
    };
    Err(lacking(argument, &why))
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
    // Fabric names one at a time.
    if let Err(lacking) = variables(step, context) {
        return lacking;
    }
    // Older versions of Fabric do not find a model in another case.
    let is_exact = |one: &str, other: &str| one == other;
    let models = listed_models(std::slice::from_ref(step), context);
    match models.map(|models| unknown_model(&models.unwrap_or_default(), step, is_exact)) {
        Err(stopped) => return stopped,
        Ok(Some((_, why))) => error.detail = format!("{why} {}", error.detail),
        Ok(None) => {}
    }
    error
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
    let Some(read) = unless_cancelled(fabric.pattern(&step.pattern, &context.wait()))? else {
        return Ok(());
    };
    let (pattern, needed) = (&step.pattern, read.variables());
    lacks_nothing("variables", pattern, &needed, &step.variables)
}

/// Refuses unknown patterns and missing variables of a chain.
fn patterns(steps: &[Chat], input: &str, context: &Arc<Context>) -> Result<(), Error> {
    let names = context
        .backend
        .catalog
        .names(Duration::ZERO, &context.wait())?;
    for (i, step) in steps.iter().enumerate() {
        let (place, pattern) = (place(i), &step.pattern);
        if !names.contains(pattern.as_str()) {
            let mut error = not_found(pattern, &names);
            error.detail = format!("`{place}pattern_name`: {} Nothing was run.", error.detail);
            return Err(error);
        }
        let read = context.backend.fabric.pattern(pattern, &context.wait())?;
        let argument = format!("{place}variables");
        lacks_nothing(&argument, pattern, &read.variables(), &step.variables)?;
        // Checked again with its input when the step is run.
        if !step.variables.is_empty() {
            let input = if i == 0 { input } else { "" };
            template::check(&read, &step.variables, input)
                .map_err(|error| within(&place, format!("{} Nothing was run.", error.detail)))?;
        }
    }
    Ok(())
}

/// Refuses unknown models and vendors of a chain.
fn models(steps: &[Chat], context: &Arc<Context>) -> Result<Option<String>, Error> {
    let Some(models) = listed_models(steps, context)? else {
        let seconds = MODELS_TIME.as_secs();
        return Ok(Some(format!(
            "Models and vendors were not checked before the run: Fabric did not list them within {seconds} s."
        )));
    };
    for (i, step) in steps.iter().enumerate() {
        if let Some((argument, why)) = unknown_model(&models, step, is_same) {
            // A step without its own model uses the call's, which came first.
            let place = place(i);
            return Err(lacking(format!("{place}{argument}"), &why));
        }
    }
    Ok(None)
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

/// Passes on only a cancellation: an unreadable list does not prevent the run.
fn unless_cancelled<T>(read: Result<T, Error>) -> Result<Option<T>, Error> {
    match read {
        Err(error) if error.kind == Kind::Cancelled => Err(error),
        read => Ok(read.ok()),
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
