// The bodies of the API, generated from central's OpenAPI document. What is optional there has a default, which an answer
// always has; what the document leaves open is said here.
import type * as api from '../../../clients/typescript/src/generated/api';

type Whole<T> = T extends (infer Item)[] ? Whole<Item>[] : T extends object ? { [Key in keyof T]-?: Whole<T[Key]> } : T;

export type Attention = api.AttentionBody;
export type Overview = api.OverviewBody;
export type Hold = api.HoldBody;
export type Instance = Whole<api.InstanceBody>;
export type Deployment = Whole<api.DeploymentBody>;
export type Site = Whole<api.SiteBody>;
export type Node = Whole<api.NodeBody>;
export type Device = api.DeviceBody;
export type App = api.AppBody;
export type Imported = api.ImportedBody;
export type Decision = api.DecisionBody;
export type HistoryEntry = api.HistoryEntryBody;
export type Revision = api.RevisionBody;
export type Planned = Whole<api.PlannedDeployment>;
export type Plan = Whole<api.PlanBody>;
export type DeployRequest = api.Deploy;
export type Deployed = api.DeployedBody;
export type Rollout = api.RolloutBody;
export type RolloutDetail = api.RolloutDetailBody;
export type Token = api.TokenBody;
export type AuditEntry = api.AuditEntryBody;
export type LogLine = api.LogLineBody;
export type LogLines = api.LogLinesBody;
export type Job = api.JobBody;
export type JobOutput = api.OutputBody;
export type JobType = api.JobType;
export type SubmitJob = api.SubmitJob;
export type Model = api.ModelBody;
export type Telemetry = api.TelemetryBody;
export type Heartbeats = api.HeartbeatsBody;
export type Use = Whole<api.UseBody>;
export type Invitation = api.InvitationBody;
export type Identity = api.IdentityBody;
export type Registry = api.RegistryBody;

export type Run = api.RunBody;
export type RunDetail = api.RunDetailBody;
export type StepResult = api.StepResultBody;
export type Pipeline = api.PipelineBody;
export type PipelineInput = api.InputBody;
export type PipelineDetail = api.PipelineDetailBody;
export type CheckedPipeline = api.CheckedBody;

export interface Setting { parameter: string; name: string; description?: string; schema?: string; immutable?: boolean }
export interface Schema { name: string; dataType: string; allowEmpty?: boolean; minValue?: number; maxValue?: number; minLength?: number; maxLength?: number; regexMatch?: string; options?: unknown[] }
export type AppDetail = Omit<api.AppDetailBody, 'parameters' | 'configuration'> & {
	parameters: Record<string, { value?: unknown }>;
	configuration: { sections?: { name: string; settings: Setting[] }[]; schema?: Schema[] } | null;
};
export type Pool = api.Pool;
export type Queue = api.Queue;
export type TaskSession = api.ListedSession;
export type Artifact = api.Artifact;
export type UsageRow = api.UsageRow;
