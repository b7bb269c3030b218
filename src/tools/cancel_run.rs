//! `fabric_cancel_run`: stops a run whose call was answered before its end.

use crate::config::MAX_RUN_OUTPUT;
use crate::fabric::{Error, Kind};
use crate::runs::Run;

use super::get_run::{find, shown};
use super::{Arguments, Policy, Prepared, Tool, refused};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_cancel_run",
    title: "Cancel a run",
    description: "Stop a run; returns its output so far.",
    output: include_str!("results/cancel_run.json"),
    read_only: false,
    prepare,
};

fn prepare(arguments: &mut Arguments<'_>, _: &Policy) -> Result<Prepared, Error> {
    let run_id = arguments.required("run_id", "The run.", |_, id| match id {
        "" => Err(refused(
            "`run_id` is missing: fabric_run_pattern and fabric_get_run give it.",
        )),
        id => Ok(id.to_owned()),
    })?;
    Ok(Prepared::new(move |context| {
        let run = find(context, "run_id", &run_id)?;
        cancel(&run)?;
        shown(context, &run, 0, MAX_RUN_OUTPUT)
    }))
}

/// Cancels a run. False if it had ended or was cancelled before.
pub(crate) fn cancel(run: &Run) -> Result<bool, Error> {
    run.cancel().map_err(|_logged| {
        Error::new(
            Kind::Internal,
            "The run goes on: another process works on it and could not be told to stop, as the state folder cannot be \
             written or read. Its disk may be full; the server's log says more. Cancel again when that is fixed.",
        )
    })
}
