// The answers of the API by their names in docs/openapi.json. A field that the API loses fails the build.
import type { components, operations } from "./schema";

type Schemas = components["schemas"];
export type JobRow = Schemas["JobRow"];
export type NodeRow = Snapshot["nodes"][number];
export type DeviceRow = NodeRow["devices"][number];
export type Snapshot = Schemas["Snapshot"];
export type Delta = Schemas["Delta"];
export type JobDetails = Schemas["JobDetails"];
export type JobSpec = Schemas["GPUJobSpec"];
export type Explanation = Schemas["Explanation"];
export type EventRow = Schemas["EventRow"];
export type Position = Schemas["Position"];
export type Me = Schemas["Me"];
export type DryRun = Schemas["DryRun"];
export type JobChange = Schemas["JobChange"];
export type PlannedChange = Schemas["PlannedChange"];
export type Effects = Schemas["Effects"];
export type PlanRow = Schemas["PlanRow"];
export type PlanPage = Schemas["PlanPage"];
export type HistoryRecord = Schemas["JobRecord"];
export type RightSizePage = Schemas["RightSizePage"];
export type RightSizeRow = Schemas["RightSizeRow"];
export type NodeFindings = Schemas["NodeFindings"];
export type QuotaRow = Schemas["QuotaRow"];
export type Phase = JobRow["phase"];
export type JobDevice = JobRow["devices"][number];
export type StreamQuery = operations["v3_stream"]["parameters"]["query"];
