//! Checks before a paid run, and explanations after a failed one.
//!
//! A single run needs at most the lists that its names come from. A chain is checked as a whole, so that it does not
//! fail half-way for a reason that could be known.

use std::sync::Arc;
use std::time::Duration;

use crate::fabric::names::{did_you_mean, is_same, is_usual};
use crate::fabric::{
    Cause, Chat, Error, Kind, Models, Name, NameList, Observer, Place, Route, Until, lacks_nothing,
    not_found, template,
};
use crate::search;
use crate::text::closest;
use crate::tools::arguments::is_meant;
use crate::tools::list_contexts::no_folder;
use crate::tools::name_lookup::{alike, no_strategy, not_listed, take};
use crate::tools::{Context, Policy, invalid};

/// Longest wait for the list of models: Fabric may be asking every vendor.
const MODELS_TIME: Duration = Duration::from_secs(5);
/// The warning of a chain for which there was no list of models.
const UNCHECKED: &str = "Models and vendors were not checked before the run, because Fabric did \
    not list them in time, or at all.";
/// A vendor that runs models which it does not list.
const UNLISTED_VENDOR: &str = "codex";

/// What a check has found: nothing, a warning or a fault.
pub(super) type Finding = Result<Option<String>, Error>;

/// Checks all steps before the first one is run, and returns warnings, beside what was `found` before. `input` is the
/// input of the first step; `lacks_input` says that it is empty although the step needs one. Arguments may have been
/// refused before.
pub(super) fn check(
    steps: &mut [Chat],
    input: &str,
    lacks_input: bool,
    mut found: Vec<Finding>,
    context: &Arc<Context>,
) -> Result<Vec<String>, Error> {
    let (fabric, observer) = (&context.backend.fabric, &context.observer());
    let fault = context.head.plan.fault.as_ref();
    // Old versions of Fabric ignore an unknown strategy silently.
    if steps.iter().any(|step| step.strategy.is_some())
        && let Some(all) = context.unless_cancelled(context.backend.catalog.strategies(observer))?
    {
        let known = all.iter().flatten().map(|one| one.name.as_str()).collect();
        for step in &mut *steps {
            found.push(leave_out("strategy", &mut step.strategy, &known));
            let why = |name: &str| no_strategy(name, (*all).as_deref());
            let (place, name) = (&step.place, step.strategy.as_mut());
            found.extend(name.map(|name| is_known(place, "strategy", name, &known, why)));
        }
    }
    // Context and session belong to the first step. Fabric's error for a context would show a path of its host.
    if steps[0].context.is_some()
        && let Some(all) = context.unless_cancelled(fabric.stored(Route::Contexts, observer))?
    {
        let why = |name: &str| match &all {
            Some(known) => not_listed("context", name, "", known, ""),
            None => no_folder("contexts"),
        };
        let none = NameList::default();
        let known = all.as_ref().unwrap_or(&none);
        found.push(leave_out("context", &mut steps[0].context, known));
        let name = steps[0].context.as_mut();
        found.extend(name.map(|name| is_known(&Place::Call, "context", name, known, why)));
    }
    // Fabric starts a new session silently, but it may be a typing error.
    if steps[0].session.is_some()
        && let Some(all) = context.unless_cancelled(fabric.stored(Route::Sessions, observer))?
        && let known = all.unwrap_or_default()
        && let () = found.push(leave_out("session", &mut steps[0].session, &known))
        && let Some(name) = steps[0].session.as_ref().map(Name::as_str)
        && !known.contains(name)
    {
        let hint = did_you_mean(name, &known);
        let new = format!("The session \"{name}\" is new: it begins without messages.{hint}");
        found.push(Ok(Some(new)));
    }
    // What is refused anyway is checked as a whole, as a chain is, so that all its faults are told at once. With variables,
    // the guard reads the pattern.
    let (first, latest) = (&steps[0], context.backend.catalog.latest());
    let latest = latest.as_ref();
    let read = latest.and_then(|latest| latest.pattern(first.pattern.as_str()));
    let is_whole = steps.len() > 1
        || fault.is_some()
        || found.iter().any(Result::is_err)
        || lacks_input
        || read.is_some_and(|read| lacks_nothing(first, &read.variables).is_err());
    if is_whole {
        let names = fabric.names(Duration::ZERO, observer);
        let read = names
            .and_then(|names| patterns(&names, steps, (input, lacks_input), context, &mut found));
        // What is refused anyway needs no list.
        if fault.is_none() && found.iter().all(Result::is_ok) {
            read?;
        }
    }
    models(steps, is_whole, context, &mut found)?;
    let faults = found.iter().filter_map(|checked| checked.clone().err());
    Error::all(faults)?;
    fault.cloned().map_or(Ok(()), Err)?;
    Ok(found.into_iter().flatten().flatten().collect())
}

/// Leaves out a name such as "default" where nothing has one like it, and says so.
fn leave_out(what: &str, name: &mut Option<Name>, known: &NameList) -> Finding {
    let is_like = |name: &Name| known.iter().any(|known| is_same(known, name.as_str()));
    let left = name.take_if(|name| is_usual(name.as_str()) && !is_like(name));
    let none = |name: Name| {
        format!(
            "There is no {what} named \"{}\", so none is used.",
            name.as_str()
        )
    };
    Ok(left.map(none))
}

/// Refuses the name of `what` in a step if it is not `known`, unless there is one that is alike: that is taken.
fn is_known(
    place: &Place,
    what: &str,
    name: &mut Name,
    known: &NameList,
    why: impl FnOnce(&str) -> String,
) -> Finding {
    let taken = take(what, name, known);
    let found = known.contains(name.as_str()).then_some(taken);
    found.ok_or_else(|| lacking(place.path(&format!("{what}_name")), &why(name.as_str())))
}

/// The refusal of a run without an input.
pub(super) fn no_input(step: &Chat) -> Error {
    let mut variables = step.variables.keys();
    let what = match variables.find(|name| is_meant(name, "input_text")) {
        Some(name) => format!("give what is in `variables.{name}` as input_text."),
        None => "give the whole text as input_text, or input_from.".to_owned(),
    };
    let as_it_is = match search::shipped(step.pattern.as_str()) {
        Some(_) => String::new(),
        None => {
            let given = step.place.give("input_is_text", "true");
            format!(" If the pattern needs no input, {given} runs it.")
        }
    };
    let why = "`input_text` is empty, so the model would invent an input:";
    invalid(format!("{why} {what}{as_it_is} Nothing was run.")).about("input_text")
}

/// Adds to the error of a step whether Fabric lacks a name in it.
pub(super) fn with_names_looked_up(step: &Chat, mut error: Error, context: &Arc<Context>) -> Error {
    let fabric = &context.backend.fabric;
    // What Fabric says in every language, if it has no default vendor, or neither model nor vendor.
    let mut words = ["Default Model = Default Vendor =", "Default Vendor = ."].into_iter();
    if step.model.is_empty() && words.any(|words| error.detail.contains(words)) {
        return Error {
            kind: error.kind,
            ..Error::of(Cause::NoDefaultModel, &[])
        };
    }
    // No Fabric is started only to explain an error.
    if fabric.rests() {
        return error;
    }
    // The pattern may not exist; the names are read only after a failure.
    error = fabric.or_not_found(&step.pattern, error, &context.observer());
    if error.kind != Kind::PatternNotFound && !error.is_vague() {
        return error;
    }
    // Fabric reports only the first fault, so the names that it did not get to are looked up here.
    let (steps, mut found) = (std::slice::from_ref(step), Vec::new());
    let names = fabric.names(fabric.missing(), &context.observer());
    let _ = names.map(|names| patterns(&names, steps, ("", false), context, &mut found));
    let faults = found.into_iter().filter_map(Result::err);
    error = Error::all(faults).err().unwrap_or(error);
    // Older versions of Fabric do not find a model in another case.
    match listed_models(steps, context) {
        Err(stopped) => return stopped,
        Ok(models) => {
            let policy = &context.backend.policy;
            let unknown = models.and_then(|models| unknown_model(&models, step, str::eq, policy));
            if let Some((argument, why)) = unknown {
                // Fabric's words for what it finds out before it asks a model.
                let mut words = ["Default Vendor =", "not available for vendor"].iter();
                if words.any(|words| error.detail.contains(words)) {
                    // Fabric may have listed its models before the vendors answered: a new start lists them again.
                    let _ = fabric.process.as_ref().map(|process| process.retire());
                    return lacking(argument, &why);
                }
                let end = if error.detail.ends_with('.') { "" } else { "." };
                error.detail += &format!("{end} `{argument}`: {why}");
            }
        }
    }
    error
}

/// Finds unknown patterns and missing variables of a chain, and a missing input.
fn patterns(
    names: &NameList,
    steps: &[Chat],
    (input, lacks_input): (&str, bool),
    context: &Arc<Context>,
    found: &mut Vec<Finding>,
) -> Result<(), Error> {
    let observer = &context.observer();
    // A missing or invalid name has been refused before.
    let is_named = |step: &&Chat| step.pattern != Name::default();
    for mut step in steps.iter().filter(is_named).cloned() {
        let (place, pattern) = (&step.place, &step.pattern);
        let is_first = !matches!(place, Place::Object(_));
        if !names.contains(pattern.as_str()) {
            // Only patterns that may be run are suggested.
            let allows = |name: &str| context.backend.policy.allows(name);
            let mut unknown = not_found(pattern, names, &allows);
            let (field, why) = (place.path("pattern_name"), unknown.detail);
            unknown.detail = format!("`{field}`: {why} Nothing was run.");
            found.push(Err(unknown));
            // If only one pattern is similar, its variables are checked too, so that the next try is right.
            let meant = match closest(pattern.as_str(), names.iter())[..] {
                [meant] => Name::parse("", meant),
                _ => continue,
            };
            let Ok(pattern) = meant else { continue };
            step.pattern = pattern;
        }
        let read = context.backend.fabric.pattern(&step.pattern, observer)?;
        let needed = read.variables();
        let mut checked = lacks_nothing(&step, &needed);
        // The text may have been given as a variable.
        let mut unused = step.variables.keys().filter(|name| !needed.contains(name));
        let is_elsewhere = unused.any(|name| is_meant(name, "input_text"));
        if lacks_input && is_first && (needed.is_empty() || checked.is_err() || is_elsewhere) {
            checked = Error::all(checked.err().into_iter().chain([no_input(&step)]));
        }
        // Checked again, with the real input, when the step is run.
        if checked.is_ok() && !step.variables.is_empty() {
            let (field, input) = (place.path("variables"), if is_first { input } else { "" });
            checked = template::check(&read, &field, &step.variables, input)
                .map_err(|error| invalid(error.detail + " Nothing was run."));
        }
        found.push(checked.map(|()| None));
    }
    Ok(())
}

/// Replaces models by those of similar names. In a call that is checked as a whole, also finds unknown models and
/// vendors. In other calls, models are looked up only if the list is known already, or if the name cannot be right: a
/// run with a wrong model fails without cost.
fn models(
    steps: &mut [Chat],
    is_whole: bool,
    context: &Arc<Context>,
    found: &mut Vec<Finding>,
) -> Result<(), Error> {
    let models = match is_whole || steps[0].model.contains(' ') {
        true => listed_models(steps, context)?,
        false => context.backend.catalog.cached_models(),
    };
    let Some(models) = models else {
        found.push(Ok(is_whole.then(|| UNCHECKED.to_owned())));
        return Ok(());
    };
    let all = models.models.iter().collect();
    let vendors = models.vendors.keys().collect();
    // A model that the operator allows by its name stays as the operator spells it.
    let policy = &context.backend.policy;
    for step in steps {
        if !policy.allowed_models.contains(&step.model)
            && let Some((taken, said)) = alike("model", &step.model, &all)
            && policy.may_run(&taken)
        {
            step.model = taken;
            found.push(Ok(Some(said)));
        }
        if let Some((taken, said)) = alike("vendor", &step.vendor, &vendors) {
            step.vendor = taken;
            found.push(Ok(Some(said)));
        }
        // A model that is refused anyway is no reason to suggest others that may be refused too.
        let is_refused = !step.model.is_empty() && !policy.may_run(&step.model);
        if is_whole
            && !is_refused
            && let Some((argument, why)) =
                unknown_model(&models, step, str::eq_ignore_ascii_case, policy)
        {
            // A step without its own model uses the call's, which came first.
            found.push(Err(lacking(argument, &why)));
            break;
        }
    }
    Ok(())
}

/// The cached models if they have all that the steps name, else a fresh list; `None` if that takes too long or
/// fails.
fn listed_models(steps: &[Chat], context: &Arc<Context>) -> Result<Option<Arc<Models>>, Error> {
    let is_default = |step: &Chat| step.model.is_empty() && step.vendor.is_empty();
    if steps.iter().all(is_default) {
        return Ok(Some(Arc::default()));
    }
    let (catalog, policy) = (&context.backend.catalog, &context.backend.policy);
    let has = |models: &Models, step| {
        !models.models.is_empty()
            && unknown_model(models, step, str::eq_ignore_ascii_case, policy).is_none()
    };
    let cached = catalog.cached_models();
    let cached = cached.filter(|models| steps.iter().all(|step| has(models, step)));
    let limited: Observer = Arc::new(Until::after(MODELS_TIME, context.observer()));
    match cached {
        None => context.unless_cancelled(catalog.models(&limited)),
        cached => Ok(cached),
    }
}

/// Refuses an argument that names what Fabric lacks.
fn lacking(argument: String, why: &str) -> Error {
    let out = "Leave it out for none or the default.";
    invalid(format!("`{argument}`: {why} {out} Nothing was run.")).about(argument)
}

/// The argument that names what Fabric lacks, and why. Fabric accepts `vendor/model`.
fn unknown_model(
    models: &Models,
    step: &Chat,
    is_it: fn(&str, &str) -> bool,
    policy: &Policy,
) -> Option<(String, String)> {
    let vendors = &models.vendors;
    let all = models.models.iter().chain(vendors.values().flatten());
    let all: NameList = all.collect();
    let has = |names: &NameList, name: &str| names.iter().any(|known| is_it(known, name));
    let (setting, model, vendor) = policy.model_of(step.pattern.as_str());
    let is_setting = (model, vendor) == (&step.model, &step.vendor);
    let by = format!(", which {setting} names: this server's operator must change that");
    let by = if is_setting { &*by } else { "" };
    let (model, vendor) = (&*step.model, &*step.vendor);
    // Fabric lists none while it is still asking the vendors.
    if all.is_empty() || vendor.eq_ignore_ascii_case(UNLISTED_VENDOR) {
        return None;
    }
    let no_model = |of: &str, known: &NameList| {
        let may_run = |name: &&str| is_setting || policy.may_run(name);
        let known = known.iter().filter(may_run).collect();
        not_listed("model", model, &(of.to_owned() + by), &known, "")
    };
    let (known, of) = match vendors.iter().find(|(known, _)| is_it(known, vendor)) {
        Some((name, known)) => (known.iter().collect(), format!(" of the vendor {name}")),
        None if vendor.is_empty() => (all.iter().collect(), String::new()),
        None => {
            let known = vendors.keys().collect();
            let mut why = not_listed("vendor", vendor, by, &known, "");
            if !model.is_empty() && !has(&all, model) {
                let model_name = step.place.path("model_name");
                why += &format!(" `{model_name}`: {}", no_model("", &all));
            }
            return Some((step.place.path("vendor_name"), why));
        }
    };
    // A vendor may have models that it does not list.
    let prefix = model.split_once('/').filter(|_| vendor.is_empty());
    let is_vendor = |prefix: &str| (vendors.keys()).any(|known| known.eq_ignore_ascii_case(prefix));
    let is_known = model.is_empty()
        || has(&known, model)
        || prefix.is_some_and(|(prefix, _)| is_vendor(prefix));
    (!is_known).then(|| (step.place.path("model_name"), no_model(&of, &known)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn models_are_known_as_fabric_knows_them() {
        let all = [
            ("OpenAI", "gpt-x"),
            ("Ollama", "llama3:8b meta/x"),
            ("Empty", ""),
        ];
        let vendors = all.map(|(vendor, models)| {
            let models = models.split_whitespace().map(str::to_owned);
            (vendor.to_owned(), Vec::from_iter(models))
        });
        let vendors = BTreeMap::from(vendors);
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
            let policy = Policy {
                default_model: "yyyyyyyy".into(),
                allowed_models: vec!["gpt-x".into(), "llama3:8b".into()],
                ..Policy::default()
            };
            unknown_model(models, &step, str::eq_ignore_ascii_case, &policy)
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
        let ends = "Give one that fabric_list_models lists.";
        let model_named = "model_name: Fabric has no model named";
        let vendor_named = "vendor_name: Fabric has no vendor named";
        let mine = format!("{model_named} \"gpt-y\". Did you mean \"gpt-x\"? ");
        let few = "It has: ";
        let none = format!("{model_named} \"zzzzzzzz\". {few}\"gpt-x\" and \"llama3:8b\".");
        let theirs = ", which --default-model names: this server's operator must change that.";
        let theirs = none.replace("zzzzzzzz\".", &format!("yyyyyyyy\"{theirs}"));
        let theirs = theirs.replace(" and \"llama3:8b\"", ", \"llama3:8b\" and \"meta/x\"");
        let near = format!("{vendor_named} \"opnai\". Did you mean \"OpenAI\"? ");
        let both = format!("{near}{ends} `{mine}").replace("model_name:", "model_name`:");
        let other = format!("{model_named} \"gpt-x\" of the vendor Ollama. {few}\"llama3:8b\".");
        for (model, vendor, why) in [
            ("gpt-y", "", mine + ends),
            ("zzzzzzzz", "", none),
            ("yyyyyyyy", "", theirs),
            ("gpt-x", "opnai", near + ends),
            ("gpt-y", "opnai", both + ends),
            ("gpt-x", "ollama", other),
        ] {
            assert_eq!(unknown(&models, model, vendor), Some(why));
        }
        assert_eq!(unknown(&Models::default(), "x", "y"), None, "not asked yet");
    }
}
