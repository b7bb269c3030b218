//! `fabric_cancel_run`: stops a run whose call was answered before its end.

use crate::config::MAX_RUN_OUTPUT;
use crate::fabric::Error;

use super::get_run::find;
use super::run_result::result;
use super::{Arguments, Policy, Tool, ToolWork, invalid};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_cancel_run",
    title: "Cancel a run",
    description: "Stop a run and get its output so far.",
    output: include_str!("results/cancel_run.json"),
    read_only: false,
    declare,
};

fn declare(arguments: &mut Arguments<'_>, _: &Policy) -> Result<ToolWork, Error> {
    let run_id = arguments.required("run_id: The run.", "a string", |_, id| match id {
        "" => Err(invalid(
            "`run_id` is missing: fabric_run_pattern and fabric_get_run give it.",
        )),
        id => Ok(id.to_owned()),
    });
    Ok(Box::new(move |context| {
        let run = find(context, "run_id", &run_id)?;
        run.cancel()?;
        run.await_end();
        let (backend, account) = (&context.backend, context.account());
        result(&run, Some((0, MAX_RUN_OUTPUT)), backend, account)
    }))
}
