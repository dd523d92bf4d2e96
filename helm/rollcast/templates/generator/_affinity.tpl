{{/* The generators' own affinity, or packing on nodes that already run some. */}}
{{- define "rollcast.generatorAffinity" -}}
{{- if .Values.generator.affinity -}}
{{- toYaml .Values.generator.affinity -}}
{{- else if .Values.generator.packing -}}
podAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 50
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {{- include "rollcast.selector" (list . "generator") | nindent 12 }}
{{- end -}}
{{- end -}}
