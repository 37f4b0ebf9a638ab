//! Printers of Jobs and CronJobs.

use jiff::Timestamp;
use serde::de::IgnoredAny;

use super::decode;
use super::metadata::{Condition, Metadata, PodTemplateSpec};
use crate::Row;
use crate::duration::HumanDuration;
use crate::selector::{StructuredLabelSelector, format_label_selector};
use crate::time::Time;
use crate::value::{ListValue, TextValue, parts};

parts! {
    struct Job<'a> {
        metadata: Metadata<'a>,
        spec: JobSpec<'a>,
        status: JobStatus<'a>,
    }

    struct JobSpec<'a> {
        template: PodTemplateSpec<'a>,
        completions: Option<i64>,
        parallelism: Option<i64>,
        selector: Option<StructuredLabelSelector<'a>>,
    }

    struct JobStatus<'a> {
        conditions: ListValue<Condition<'a>>,
        succeeded: i64,
        start_time: Time,
        completion_time: Time,
    }

    struct CronJob<'a> {
        metadata: Metadata<'a>,
        spec: CronJobSpec<'a>,
        status: CronJobStatus,
    }

    struct CronJobSpec<'a> {
        schedule: TextValue<'a>,
        time_zone: Option<TextValue<'a>>,
        suspend: Option<bool>,
        job_template: JobTemplateSpec<'a>,
    }

    struct JobTemplateSpec<'a> {
        spec: JobSpec<'a>,
    }
}

parts! {
    struct CronJobStatus {
        active: ListValue<IgnoredAny>,
        last_schedule_time: Option<Time>,
    }
}

pub(super) fn job(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let job: Job<'_> = decode(object)?;
    let (spec, status) = (&job.spec, &job.status);
    row.text(&job.metadata.name);
    row.text(job_status(&job));
    match (spec.completions, spec.parallelism) {
        (Some(completions), _) => row.format(format_args!("{}/{completions}", status.succeeded)),
        (None, Some(parallelism)) if parallelism > 1 => {
            row.format(format_args!("{}/1 of {parallelism}", status.succeeded));
        }
        _ => row.format(format_args!("{}/1", status.succeeded)),
    }
    match (status.start_time.0, status.completion_time.0) {
        (None, _) => row.text(""),
        (Some(start), end) => row.format(format_args!("{}", HumanDuration::between(start, end.unwrap_or(now)))),
    }
    row.format(format_args!("{}", job.metadata.creation_timestamp.since(now)));
    template_and_selector(spec, row);
    Ok(())
}

/// Returns the name of the Job's state. If several conditions are true, final conditions such as `Complete` precede
/// transient conditions such as `Suspended`.
fn job_status(job: &Job<'_>) -> &'static str {
    let holds =
        |r#type: &str| job.status.conditions.iter().find(|c| &*c.r#type == r#type).is_some_and(Condition::is_true);
    if holds("Complete") {
        "Complete"
    } else if holds("Failed") {
        "Failed"
    } else if job.metadata.deletion_timestamp.is_some() {
        "Terminating"
    } else if holds("Suspended") {
        "Suspended"
    } else if holds("FailureTarget") {
        "FailureTarget"
    } else if holds("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

pub(super) fn cron_job(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let job: CronJob<'_> = decode(object)?;
    row.text(&job.metadata.name);
    row.text(&job.spec.schedule);
    row.text(job.spec.time_zone.as_deref().unwrap_or("<none>"));
    row.text(match job.spec.suspend {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    });
    row.number(i64::try_from(job.status.active.len()).unwrap_or(i64::MAX));
    match job.status.last_schedule_time {
        Some(time) => row.format(format_args!("{}", time.since(now))),
        None => row.text("<none>"),
    }
    row.format(format_args!("{}", job.metadata.creation_timestamp.since(now)));
    template_and_selector(&job.spec.job_template.spec, row);
    Ok(())
}

fn template_and_selector(spec: &JobSpec<'_>, row: &mut Row) {
    row.text(&spec.template.names());
    row.text(&spec.template.images());
    row.text(&format_label_selector(spec.selector.as_ref()));
}
