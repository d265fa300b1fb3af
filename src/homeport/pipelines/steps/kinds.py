"""Every kind of step, one line each."""

from collections.abc import Mapping

from homeport.core.pipelines.model import StepKind
from homeport.fleet.central.platform import CentralPlatform
from homeport.jobs.ports import Jobs
from homeport.pipelines.service import Pipelines
from homeport.pipelines.steps.call import PipelineSteps
from homeport.pipelines.steps.http import HttpSteps
from homeport.pipelines.steps.inference import InferenceSteps
from homeport.pipelines.steps.job import JobSteps
from homeport.pipelines.steps.plugin import PluginSteps, StepPlugin
from homeport.pipelines.steps.work import StepKindExecutor


def step_kinds(
    central: CentralPlatform, pipelines: Pipelines, jobs: Jobs, plugins: Mapping[str, StepPlugin]
) -> Mapping[StepKind, StepKindExecutor]:
    return {
        StepKind.JOB: JobSteps(jobs, central.store),
        StepKind.INFERENCE: InferenceSteps(central.inference),
        StepKind.HTTP: HttpSteps(central.pipelines, central.secrets),
        StepKind.PIPELINE: PipelineSteps(central, pipelines),
        StepKind.PLUGIN: PluginSteps(plugins),
    }
