//! `fabric_list_models`: the models that Fabric can use.

use std::sync::Arc;

use super::{Context, Failure, Outcome, Prepared, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_list_models",
    title: "List models",
    description: "List the models that Fabric can use, by vendor, for model_name and vendor_name. Only needed to choose \
                  another model than Fabric's default.",
    output: include_str!("results/list_models.json"),
    read_only: true,
    prepare: |_, _| Ok(Prepared::new(models)),
};

fn models(context: &Arc<Context>) -> Result<Outcome, Failure> {
    let found = context.backend.catalog.models(&context.wait())?;
    Ok(Outcome::rows(found.models.len())
        .charged(&context.caller.account)
        .member("all_models", &found.models)
        .member("models_by_vendor", &found.vendors))
}
