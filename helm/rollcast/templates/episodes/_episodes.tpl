{{/* The namespaces in which generators make pods of episodes, as {"namespaces": [...]}: those of the environments of the run file
whose container has the engine kubernetes. What is no map is refused by the run file's own rules. */}}
{{- define "rollcast.episodePods" -}}
{{- $tasks := kindIs "map" .Values.config.tasks | ternary .Values.config.tasks dict -}}
{{- $found := list -}}
{{- range $environment := kindIs "slice" $tasks.environments | ternary $tasks.environments list -}}
{{- $container := kindIs "map" $environment | ternary (get (kindIs "map" $environment | ternary $environment dict) "container") dict -}}
{{- if kindIs "map" $container -}}
{{- if eq (toString (get $container "engine")) "kubernetes" -}}
{{- $found = append $found (kindIs "string" $container.namespace | ternary $container.namespace $.Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- dict "namespaces" (uniq $found) | toJson -}}
{{- end -}}

{{/* Name of the objects for episodes in a namespace; (list . "namespace"). Releases of several namespaces may share another one. */}}
{{- define "rollcast.episodesName" -}}
{{- $root := index . 0 -}}
{{- include "rollcast.fullname" $root -}}
{{- if ne (index . 1) $root.Release.Namespace }}-{{ include "rollcast.releaseSum" $root }}{{ end -}}
-episodes
{{- end -}}
