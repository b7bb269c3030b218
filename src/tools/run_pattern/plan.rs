//! Checks before a paid run, and explanations after a failed one.
//!
//! A single run needs at most the lists that its names come from. A chain is checked as a whole, so that it does not
//! fail half-way for a reason that could be known.

use std::sync::Arc;
use std::time::Duration;

use crate::fabric::names::did_you_mean;
use crate::fabric::{
    Age, Chat, Error, Kind, Models, NO_STRATEGIES, Names, StoredKind, Strategy, Wait,
    lacks_nothing, not_found, template,
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
    let wait = &context.wait();
    let mut warnings = Vec::new();
    strategies(steps, context, wait)?;
    for step in steps {
        known_context(step, context, wait)?;
        warnings.extend(session(step, context, wait)?);
    }
    // A single run with a wrong model fails without cost, so models are checked only after it failed.
    if let [step] = steps {
        known_variables(step, context, wait)?;
    } else {
        patterns(steps, input, context, wait)?;
        warnings.extend(models(steps, context, wait)?);
    }
    Ok(warnings)
}

/// Adds to the error of a step whether Fabric lacks a name in it.
pub(super) fn explain(step: &Chat, error: Error, context: &Arc<Context>) -> Error {
    let wait = &context.wait();
    // The pattern may not exist; the names are read only after a failure.
    let mut error = if error.kind == Kind::Cancelled {
        error
    } else {
        context.backend.fabric.explain(&step.pattern, error, wait)
    };
    let may_be_a_name =
        matches!(error.kind, Kind::FabricInternal | Kind::ApiError) && error.retry_after.is_none();
    if may_be_a_name && !(step.model.is_empty() && step.vendor.is_empty()) {
        match listed_models(std::slice::from_ref(step), context, wait) {
            Err(stopped) if stopped.kind == Kind::Cancelled => return stopped,
            Ok(Some(models)) => {
                if let Some((_, why)) = unknown_model(&models, step) {
                    error.detail = format!("{why} {}", error.detail);
                }
            }
            _ => {}
        }
    }
    error
}

/// Passes on only a cancellation: an unreadable list does not prevent the run.
fn unless_cancelled<T>(read: Result<T, Error>) -> Result<Option<T>, Error> {
    match read {
        Err(error) if error.kind == Kind::Cancelled => Err(error),
        read => Ok(read.ok()),
    }
}

/// Refuses an unknown strategy: old versions of Fabric ignore it silently.
fn strategies(steps: &[Chat], context: &Arc<Context>, wait: &Arc<dyn Wait>) -> Result<(), Error> {
    let named = steps
        .iter()
        .enumerate()
        .filter_map(|(i, step)| Some((i, step.strategy.as_ref()?.as_str())));
    let has = |known: &Option<Vec<Strategy>>, name: &str| {
        known.iter().flatten().any(|strategy| strategy.name == name)
    };
    for (i, name) in named {
        let Some(mut known) =
            unless_cancelled(context.backend.catalog.strategies(Age::Cached, wait))?
        else {
            return Ok(());
        };
        if known.is_some() && !has(&known, name) {
            // It may be new.
            let Some(fresh) =
                unless_cancelled(context.backend.catalog.strategies(Age::Fresh, wait))?
            else {
                return Ok(());
            };
            known = fresh;
        }
        let place = place(i);
        match known.as_ref() {
            None => {
                let error = format!("`{place}strategy_name`: {NO_STRATEGIES} Nothing was run.");
                return Err(refused(error).about(format!("{place}strategy_name")));
            }
            Some(all) if !has(&known, name) => {
                let names: Names = all.iter().map(|strategy| strategy.name.as_str()).collect();
                return Err(refused(format!(
                    "`{place}strategy_name`: Fabric has no strategy named \"{name}\".{} fabric_list_strategies has them \
                     all. Nothing was run.",
                    did_you_mean(name, &names)
                ))
                .about(format!("{place}strategy_name")));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Refuses an unknown context: Fabric's error would show a path of its host.
fn known_context(step: &Chat, context: &Arc<Context>, wait: &Arc<dyn Wait>) -> Result<(), Error> {
    let Some(name) = step.context.as_ref().map(|name| name.as_str()) else {
        return Ok(());
    };
    let Some(known) = stored(StoredKind::Contexts, name, context, wait)? else {
        return Ok(());
    };
    match known.as_ref() {
        None => Err(refused(format!(
            "`context_name`: {} Nothing was run.",
            no_folder(StoredKind::Contexts)
        ))),
        Some(names) if !names.contains(name) => Err(refused(format!(
            "`context_name`: Fabric has no context named \"{name}\".{} fabric_list_contexts has them all. Nothing was run.",
            did_you_mean(name, names)
        ))),
        Some(_) => Ok(()),
    }
}

/// Warns of a new session, which Fabric starts silently: it may be a typing error.
fn session(
    step: &Chat,
    context: &Arc<Context>,
    wait: &Arc<dyn Wait>,
) -> Result<Option<String>, Error> {
    let Some(name) = step.session.as_ref().map(|name| name.as_str()) else {
        return Ok(None);
    };
    let known = stored(StoredKind::Sessions, name, context, wait)?;
    let names = known.as_ref().and_then(|known| known.as_ref().as_ref());
    Ok(names.filter(|names| !names.contains(name)).map(|names| {
        format!(
            "Fabric had no session named \"{name}\", so this run began without earlier messages.{}",
            did_you_mean(name, names)
        )
    }))
}

/// The stored names, read again if `name` is not among the cached ones; `None` if unreadable.
fn stored(
    what: StoredKind,
    name: &str,
    context: &Arc<Context>,
    wait: &Arc<dyn Wait>,
) -> Result<Option<Arc<Option<Names>>>, Error> {
    let known = unless_cancelled(context.backend.catalog.stored(Age::Cached, what, wait))?;
    match known.as_ref().map(|known| known.as_ref()) {
        Some(Some(names)) if !names.contains(name) => {
            unless_cancelled(context.backend.catalog.stored(Age::Fresh, what, wait))
        }
        _ => Ok(known),
    }
}

/// Refuses a run without the variables of the cached pattern, once a fresh read confirms them.
fn known_variables(step: &Chat, context: &Arc<Context>, wait: &Arc<dyn Wait>) -> Result<(), Error> {
    let Some(latest) = context.backend.catalog.latest() else {
        return Ok(());
    };
    let Some(entry) = latest.pattern(step.pattern.as_str()) else {
        return Ok(());
    };
    if lacks_nothing(
        "variables",
        &step.pattern,
        &entry.variables,
        &step.variables,
    )
    .is_ok()
    {
        return Ok(());
    }
    match unless_cancelled(context.backend.fabric.pattern(&step.pattern, wait))? {
        Some(pattern) => lacks_nothing(
            "variables",
            &step.pattern,
            &pattern.variables(),
            &step.variables,
        ),
        None => Ok(()),
    }
}

/// Refuses unknown patterns and missing variables of a chain.
fn patterns(
    steps: &[Chat],
    input: &str,
    context: &Arc<Context>,
    wait: &Arc<dyn Wait>,
) -> Result<(), Error> {
    let names = context.backend.catalog.names(Age::Fresh, wait)?;
    for (i, step) in steps.iter().enumerate() {
        let place = place(i);
        if !names.contains(step.pattern.as_str()) {
            let mut error = not_found(&step.pattern, &names);
            error.detail = format!("`{place}pattern_name`: {} Nothing was run.", error.detail);
            return Err(error);
        }
        let pattern = context.backend.fabric.pattern(&step.pattern, wait)?;
        lacks_nothing(
            &format!("{place}variables"),
            &step.pattern,
            &pattern.variables(),
            &step.variables,
        )?;
        // Checked again with its input when the step is run.
        if !step.variables.is_empty() {
            let input = if i == 0 { input } else { "" };
            template::check(&pattern, &step.variables, input).map_err(|error| {
                let place = if i == 0 {
                    String::new()
                } else {
                    format!("In then[{}]: ", i - 1)
                };
                refused(format!("{place}{} Nothing was run.", error.detail))
            })?;
        }
    }
    Ok(())
}

/// The cached models if they have all that the steps name, else a fresh list; `None` if that takes too long.
fn listed_models(
    steps: &[Chat],
    context: &Arc<Context>,
    wait: &Arc<dyn Wait>,
) -> Result<Option<Arc<Models>>, Error> {
    let has_all = |models: &Arc<Models>| {
        steps
            .iter()
            .all(|step| unknown_model(models, step).is_none())
    };
    match context.backend.catalog.known_models().filter(has_all) {
        Some(known) => Ok(Some(known)),
        None => context.backend.catalog.models_within(MODELS_TIME, wait),
    }
}

/// Refuses unknown models and vendors of a chain.
fn models(
    steps: &[Chat],
    context: &Arc<Context>,
    wait: &Arc<dyn Wait>,
) -> Result<Option<String>, Error> {
    if steps
        .iter()
        .all(|step| step.model.is_empty() && step.vendor.is_empty())
    {
        return Ok(None);
    }
    let known = unless_cancelled(listed_models(steps, context, wait))?;
    let Some(models) = known.flatten() else {
        let seconds = MODELS_TIME.as_secs();
        return Ok(Some(format!(
            "Models and vendors were not checked before the run: Fabric did not list them within {seconds} s."
        )));
    };
    for (i, step) in steps.iter().enumerate() {
        if let Some((argument, why)) = unknown_model(&models, step) {
            // A step without its own model uses the call's.
            let own = i == 0 || (&step.model, &step.vendor) != (&steps[0].model, &steps[0].vendor);
            let place = if own { place(i) } else { String::new() };
            return Err(refused(format!(
                "`{place}{argument}`: {why} Nothing was run."
            )));
        }
    }
    Ok(None)
}

/// The argument that names what Fabric lacks, and why. Fabric ignores case, and accepts `vendor/model`.
fn unknown_model(models: &Models, step: &Chat) -> Option<(&'static str, String)> {
    let is_same = |one: &str, other: &str| one.to_lowercase() == other.to_lowercase();
    let missing = |what: String, wanted: &str, names: &Names| {
        format!(
            "Fabric has {what}.{} fabric_list_models has them all.",
            did_you_mean(wanted, names)
        )
    };
    let (model, vendor) = (step.model.as_str(), step.vendor.as_str());
    let is_empty = models.models.is_empty() && models.vendors.values().all(Vec::is_empty);
    // Fabric lists none while it is still asking the vendors.
    if is_empty || is_same(vendor, UNLISTED_VENDOR) {
        return None;
    }
    let known_vendor = |name: &str| models.vendors.keys().find(|known| is_same(known, name));
    let all = || {
        models
            .models
            .iter()
            .chain(models.vendors.values().flatten())
    };
    if vendor.is_empty() {
        let is_known = model.is_empty()
            || all().any(|known| is_same(known, model))
            || model
                .split_once('/')
                .is_some_and(|(prefix, _)| known_vendor(prefix).is_some());
        let names = || all().map(String::as_str).collect();
        let what = format!("no model named \"{}\"", shown(model, 128));
        return (!is_known).then(|| ("model_name", missing(what, model, &names())));
    }
    let Some(known) = known_vendor(vendor) else {
        let names = models.vendors.keys().map(String::as_str).collect();
        return Some((
            "vendor_name",
            missing(
                format!("no vendor named \"{}\"", shown(vendor, 128)),
                vendor,
                &names,
            ),
        ));
    };
    let of_vendor = &models.vendors[known];
    let is_known = model.is_empty() || of_vendor.iter().any(|known| is_same(known, model));
    let names = || of_vendor.iter().map(String::as_str).collect();
    let what = format!(
        "no model named \"{}\" of the vendor {known}",
        shown(model, 128)
    );
    (!is_known).then(|| ("model_name", missing(what, model, &names())))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::fabric::Name;

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
            assert_eq!(
                unknown(&models, model, vendor),
                Some(format!("{why}{ends}"))
            );
        }
        assert_eq!(unknown(&Models::default(), "x", "y"), None, "not asked yet");
    }
}
