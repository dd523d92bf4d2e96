{{/* A setting of values.config as text, "" if it is absent; (list . "rpc.tls"). What values.config holds is checked by the
run file's own rules (check.yaml), later: here it may be anything. */}}
{{- define "rollcast.setting" -}}
{{- $found := (index . 0).Values.config -}}
{{- range $part := splitList "." (index . 1) -}}
{{- $found = get (kindIs "map" $found | ternary $found dict) $part -}}
{{- end -}}
{{- if not (or (kindIs "invalid" $found) (and (kindIs "map" $found) (empty $found))) -}}
{{- kindIs "string" $found | ternary $found (toJson $found) -}}
{{- end -}}
{{- end -}}

{{/* The release's own namespace for a role that reads a Prometheus, unless values.config names one or none (""). */}}
{{- define "rollcast.readsNamespace" -}}
{{- $role := get (index . 0).Values.config (index . 1) -}}
{{- $source := get (kindIs "map" $role | ternary $role dict) "source" -}}
{{- $source = kindIs "map" $source | ternary $source dict -}}
{{- if and (eq (toString (get $source "kind")) "prometheus") (not (hasKey $source "namespace")) -}}
{{- (index . 0).Release.Namespace -}}
{{- end -}}
{{- end -}}

{{/* Whether the autoscaler makes the Job of a trainer that was moved again. */}}
{{- define "rollcast.replacesTrainer" -}}
{{- if and (ne .Values.autoscaler.mode "none") .Values.autoscaler.replaceTrainer (eq .Values.trainer.controller "job") -}}true{{- end -}}
{{- end -}}

{{/* The run file: values.config with what the chart knows. A group that is not a map stays, and is refused with its name. */}}
{{- define "rollcast.runFile" -}}
{{- $name := include "rollcast.fullname" . -}}
{{- $redis := dict "host" (printf "%s-redis" $name) "port" 6379 -}}
{{- if not .Values.redis.enabled -}}
{{- $scope := printf "%s/%s" .Release.Namespace .Release.Name -}}
{{- if .Values.generatorsOnly.enabled -}}{{- $scope = .Values.generatorsOnly.redisScope -}}{{- end -}}
{{- $redis = dict "host" .Values.redis.external.host "port" (int .Values.redis.external.port) "scope" $scope -}}
{{- if .Values.redis.external.tls -}}{{- $_ := set $redis "tls" dict -}}{{- end -}}
{{- end -}}
{{- $chart := dict
  "folder" "/var/lib/rollcast/runs"
  "redis" $redis
  "rpc" (dict "host" (include "rollcast.trainerHost" .) "port" (int (.Values.generatorsOnly.enabled | ternary .Values.generatorsOnly.trainerPort 7431)) "bind" .Values.networking.bind)
  "http" (dict "bind" .Values.networking.bind)
  "generator" (dict "http_port" 8080 "tensor_parallel" (max 1 (int .Values.generator.gpus)))
  "trainer" (dict "http_port" 8080)
  "forecaster" (dict "bind" .Values.networking.bind "http_port" 8400
    "history" "/var/lib/rollcast/forecaster/forecasts.sqlite")
-}}
{{- $_ := set $chart "model" (dict "path" (include "rollcast.modelFolder" .)) -}}
{{- if not (include "rollcast.setting" (list . "forecaster.source")) -}}
{{- $scheme := include "rollcast.probeScheme" . | lower -}}
{{- $_ := set $chart.forecaster "source" (dict "kind" "scrape" "urls"
    (list (printf "%s://%s:8080/metrics" $scheme (include "rollcast.trainerHost" .)))) -}}
{{- end -}}
{{- with include "rollcast.readsNamespace" (list . "forecaster") -}}
{{- $_ := set $chart.forecaster "source" (dict "namespace" .) -}}
{{- end -}}
{{- if ne .Values.autoscaler.mode "none" -}}
{{- $scaler := dict
    "mode" .Values.autoscaler.mode
    "bind" .Values.networking.bind
    "http_port" 8401
    "grpc_port" 8402
    "deployment" (printf "%s-generator" $name)
    "namespace" .Release.Namespace
    "least" (int .Values.autoscaler.minReplicas)
    "most" (int .Values.autoscaler.maxReplicas)
    "lower_after_seconds" (float64 .Values.autoscaler.scaleDown.stabilizationSeconds)
    "lower_every_seconds" (float64 .Values.autoscaler.scaleDown.everySeconds)
-}}
{{- if .Values.autoscaler.letGoAtEnd -}}
{{- $_ := set $scaler "trainer_jobs" (include "rollcast.selectorText" (list . "trainer")) -}}
{{- end -}}
{{- if include "rollcast.replacesTrainer" . -}}
{{- $_ := set $scaler "replaced_jobs" (include "rollcast.selectorText" (list . "trainer")) -}}
{{- end -}}
{{- if not (include "rollcast.setting" (list . "autoscaler.source")) -}}
{{- $_ := set $scaler "source" (dict "kind" "scrape"
    "trainer" (printf "%s://%s:8080/metrics" (include "rollcast.probeScheme" . | lower) (include "rollcast.trainerHost" .))
    "generators" (printf "%s-generator:8080" $name)) -}}
{{- end -}}
{{- with include "rollcast.readsNamespace" (list . "autoscaler") -}}
{{- $_ := set $scaler "source" (dict "namespace" .) -}}
{{- end -}}
{{- $_ := set $chart "autoscaler" $scaler -}}
{{- end -}}
{{- if include "rollcast.gradesRemotely" . -}}
{{- $_ := set $chart "tasks" (dict "grading" (dict "sandbox" "remote")) -}}
{{- $_ := set $chart "grader" (include "rollcast.graderSettings" . | fromYaml) -}}
{{- end -}}
{{- range $group, $given := .Values.config -}}
{{- if not (or (kindIs "map" $given) (kindIs "invalid" $given)) -}}{{- $_ := unset $chart $group -}}{{- end -}}
{{- end -}}
{{- $config := deepCopy .Values.config -}}
{{- if kindIs "map" $config.weights -}}{{- $_ := unset $config.weights "encoding" -}}{{- end -}}
{{- toYaml (mergeOverwrite $config $chart) -}}
{{- end -}}
