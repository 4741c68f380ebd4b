"""What is wrong in a tree of GPUQuotas: sentences of their conditions."""

from typing import Final

from dovetail.api.reasons.clause import clause
from dovetail.api.reasons.codes import (
    AS_SPECIFIED,
    CHILDREN_ABOVE_PARENT,
    DEVICES_LOST,
    GUARANTEE_ABOVE_LIMIT,
    GUARANTEES_ABOVE_CLUSTER,
    PARENT_CIRCLE,
    PARENT_MISSING,
    PARENT_NOT_TOGETHER,
    TIME_ZONE_UNKNOWN,
)

# Begins each of the others.
OF_QUOTA: Final = clause("OfQuota", "GPUQuota {quota}: ")
IN_ORDER: Final = clause("QuotaInOrder", "", reason=AS_SPECIFIED)

NO_PARENT: Final = clause("NoParent", "its parent {parent} does not exist: it acts without one", reason=PARENT_MISSING)
PARENT_APART: Final = clause(
    "ParentCountsApart",
    "its parent {parent} counts each {per} by itself (per): it acts without a parent",
    reason=PARENT_NOT_TOGETHER,
)
PARENTS_IN_CIRCLE: Final = clause(
    "ParentsInCircle", "its parents form a circle ({circle}): it acts without a parent", reason=PARENT_CIRCLE
)
NO_TIME_ZONE_OF_FORECAST: Final = clause(
    "NoSuchTimeZoneOfForecast",
    "its forecast is in the time zone {zone}, which does not exist: nothing is forecast until you name one, such as "
    "Europe/Berlin",
    reason=TIME_ZONE_UNKNOWN,
)
NO_TIME_ZONE: Final = clause(
    "NoSuchTimeZone",
    "its window {window} is in the time zone {zone}, which does not exist: the window does not count until you name "
    "one, such as Europe/Berlin",
    reason=TIME_ZONE_UNKNOWN,
)
ABOVE_LIMIT: Final = clause(
    "GuaranteesMoreThanItsLimit",
    "guarantees {guaranteed}, above its limit of {most}: {most} are guaranteed until you raise the limit or lower the "
    "guarantee",
    reason=GUARANTEE_ABOVE_LIMIT,
)
CHILDREN_ABOVE_LIMIT: Final = clause(
    "ChildrenAboveLimit",
    "has a limit of {most}, its children guarantee {sum} together ({children}): each of them gets its part until you "
    "raise the limit or lower them",
    reason=CHILDREN_ABOVE_PARENT,
)
CHILDREN_ABOVE_GUARANTEE: Final = clause(
    "ChildrenAboveGuarantee",
    "guarantees {most}, its children guarantee {sum} together ({children}): each of them gets its part until you raise "
    "it or lower them",
    reason=CHILDREN_ABOVE_PARENT,
)
_SCALED: Final = "its guarantee of {guaranteed} is scaled: {wanted} are guaranteed in the cluster, "
NOT_USABLE: Final = clause("ScaledByLoss", _SCALED + "only {usable} of {known} are usable", reason=DEVICES_LOST)
CLUSTER_SMALLER: Final = clause("ScaledByCluster", _SCALED + "the cluster has {known}", reason=GUARANTEES_ABOVE_CLUSTER)
_HOLDS: Final = "{holds} of its {guaranteed} guaranteed {what} hold: "
LIMIT_LOWER: Final = clause("LimitIsLower", _HOLDS + "its limit is lower", reason=GUARANTEE_ABOVE_LIMIT)
PARENT_LOWER: Final = clause(
    "ParentGuaranteesLess", _HOLDS + "the quota above it guarantees less", reason=CHILDREN_ABOVE_PARENT
)
